"""The settings of a run: a frozen dataclass for each task, made of sections that tasks share.

Each field of a section is a flag. `cli.flags` makes the flag from the field's name, type, default
and help, so a new setting is one new field. This package uses the standard library only, so any
other module may import it.
"""

from __future__ import annotations

from .classify_config import ClassifyConfig as ClassifyConfig
from .classify_config import LabelledConfig as LabelledConfig
from .config import Config as Config
from .config import CorpusConfig as CorpusConfig
from .config import InputConfig as InputConfig
from .config import ModelConfig as ModelConfig
from .config import OptimizerConfig as OptimizerConfig
from .config import RunConfig as RunConfig
from .config import TableConfig as TableConfig
from .config import VocabularyConfig as VocabularyConfig
from .recommend_config import RatingsConfig as RatingsConfig
from .recommend_config import RecommendConfig as RecommendConfig
from .words_config import LanguageModelConfig as LanguageModelConfig
from .words_config import WordsConfig as WordsConfig
