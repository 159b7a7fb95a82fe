"""The settings of a language model (`--task=language_model`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from ..errors import UsageError
from .config import Config
from .model_config import SKIPGRAM, ModelConfig, OptimizerConfig
from .run_config import RunConfig
from .text_config import PHRASES, InputConfig
from .words_config import WORD_LOSSES


@dataclasses.dataclass(frozen=True)
class LanguageModelConfig(Config):
    """The settings of a language model."""

    run: RunConfig = RunConfig(task="language_model")
    input: InputConfig = InputConfig(batch_tokens=1024, steps_per_call=4)
    model: ModelConfig = ModelConfig(loss="auto")
    optimizer: OptimizerConfig = OptimizerConfig(optimizer="lazy_adam")

    unused: ClassVar[frozenset[str]] = SKIPGRAM | PHRASES | {"grow_vocab", "subsample", "shuffle"}
    choices: ClassVar[dict[str, tuple[str, ...]]] = {"loss": ("auto", *WORD_LOSSES)}

    def check(self) -> None:
        """Raise UsageError if the vocabulary has no room for a word, or none is counted."""
        if self.vocabulary.max_vocab_size in (1, 2):
            raise UsageError(
                f"--max_vocab_size={self.vocabulary.max_vocab_size}: a language model has <unk> "
                "and <eos> among them; give at least 3"
            )
        if self.table.is_dynamic:
            raise UsageError(
                "--task=language_model needs a vocabulary, and --table=dynamic has none; give "
                "--task=words, or another --table"
            )

    @classmethod
    def learning_rate(cls, values: Mapping[str, Any]) -> float:
        """Return the default of --learning_rate: 0.004 for lazy Adam, else as for other tasks."""
        is_adam = values["optimizer"] == "lazy_adam"
        return 0.004 if is_adam else super().learning_rate(values)
