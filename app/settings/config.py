"""The base of the settings of every task."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from .model_config import ModelConfig, OptimizerConfig
from .run_config import RunConfig
from .table_config import TableConfig
from .text_config import CorpusConfig, InputConfig, VocabularyConfig


@dataclasses.dataclass(frozen=True)
class Config:
    """The sections of settings that every task has; each task has a subclass.

    Attributes:
        unused: The flags of these sections that the task does not have.
        choices: The values of `--model` and `--loss` that the task has, the default first.
    """

    run: RunConfig = RunConfig()
    corpus: CorpusConfig = CorpusConfig()
    vocabulary: VocabularyConfig = VocabularyConfig()
    input: InputConfig = InputConfig()
    model: ModelConfig = ModelConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    table: TableConfig = TableConfig()

    unused: ClassVar[frozenset[str]] = frozenset()
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def check(self) -> None:
        """Raise UsageError if values that are allowed by themselves do not fit this task."""

    def without_effect(self) -> set[str]:
        """Return the flags that change nothing beside the others, but for those of `NEEDS`."""
        is_unicode = self.corpus.tokenizer == "unicode"
        return set() if is_unicode else {"fold_case", "drop_punctuation"}

    @classmethod
    def learning_rate(cls, values: Mapping[str, Any]) -> float:
        """Return the default of --learning_rate beside the values of all other flags.

        The rates are measured (data/benchmarks/README.md): the power and the accumulators of
        row-wise Adagrad change the scale of its steps. 0 is the default of the optimizer.
        """
        if values["optimizer"] != "rowwise_adagrad":
            return 0.0
        if values["learning_rate_power"] == -0.3:
            return 0.4 if values.get("model") == "cbow" else 0.15
        return 0.16 if values["initial_accumulator"] == 0.001 else 0.0
