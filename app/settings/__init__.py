"""The settings of a run: a frozen dataclass for each task, made of sections that tasks share.

Each field of a section is a flag. `cli.flags` makes the flag from the field's name, type, default
and help, so a new setting is one new field. This package uses the standard library only, so any
other module may import it.
"""

from __future__ import annotations

from .classify_config import ClassifyConfig, LabelledConfig
from .config import (
    Config,
    CorpusConfig,
    InputConfig,
    ModelConfig,
    OptimizerConfig,
    RunConfig,
    TableConfig,
    VocabularyConfig,
)
from .recommend_config import RatingsConfig, RecommendConfig
from .words_config import LanguageModelConfig, WordsConfig

__all__ = [
    "ClassifyConfig",
    "Config",
    "CorpusConfig",
    "InputConfig",
    "LabelledConfig",
    "LanguageModelConfig",
    "ModelConfig",
    "OptimizerConfig",
    "RatingsConfig",
    "RecommendConfig",
    "RunConfig",
    "TableConfig",
    "VocabularyConfig",
    "WordsConfig",
]
