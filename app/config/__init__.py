"""Every setting of a run: frozen dataclasses, one per concern.

A field is a flag: `app.cli.flags` turns its name, type, default and help into an absl flag, so that
a new setting is one new field here. Standard library only, so that any layer may import it.
"""

from __future__ import annotations

import dataclasses

from .labelled_config import LabelledConfig
from .learning_config import ModelConfig, OptimizerConfig
from .ratings_config import RatingsConfig
from .run_config import RunConfig
from .setting import setting
from .table_config import TableConfig
from .text_config import CorpusConfig, InputConfig, VocabularyConfig

__all__ = [
    "Config",
    "CorpusConfig",
    "InputConfig",
    "LabelledConfig",
    "ModelConfig",
    "OptimizerConfig",
    "RatingsConfig",
    "RunConfig",
    "TableConfig",
    "VocabularyConfig",
    "setting",
]


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything about a training run."""

    corpus: CorpusConfig = CorpusConfig()
    vocabulary: VocabularyConfig = VocabularyConfig()
    input: InputConfig = InputConfig()
    labelled: LabelledConfig = LabelledConfig()
    ratings: RatingsConfig = RatingsConfig()
    model: ModelConfig = ModelConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    table: TableConfig = TableConfig()
    run: RunConfig = RunConfig()
