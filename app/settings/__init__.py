"""The settings of a run: frozen dataclasses, one for each subject.

Each field is a flag. `cli.flags` makes the flag from the field's name, type, default and help, so a
new setting is one new field here. This package uses the standard library only, so any other module
may import it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from .labelled_config import LabelledConfig
from .learning_config import ModelConfig, OptimizerConfig
from .ratings_config import RatingsConfig
from .run_config import RunConfig
from .table_config import TableConfig
from .text_config import CorpusConfig, InputConfig, VocabularyConfig


def _section(default: Any, subject: str) -> Any:
    """Return a section of the configuration whose flags `--help` lists under this subject."""
    return dataclasses.field(default=default, metadata={"subject": subject})


@dataclasses.dataclass(frozen=True)
class Config:
    """All settings of a training run.

    Attributes:
        run: The run itself, its processes and its profile.
        corpus: Which text is read, and how it is split into tokens.
        vocabulary: Which tokens get a row.
        input: How text becomes batches of ids.
        labelled: How labelled text is read (`--task=classify`).
        ratings: How users and items are read and learned (`--task=recommend`).
        model: The model and its loss.
        optimizer: How a row is updated.
        table: Where the rows are stored.
    """

    run: RunConfig = _section(RunConfig(), "run")
    corpus: CorpusConfig = _section(CorpusConfig(), "text")
    vocabulary: VocabularyConfig = _section(VocabularyConfig(), "vocabulary")
    input: InputConfig = _section(InputConfig(), "input")
    labelled: LabelledConfig = _section(LabelledConfig(), "labelled text")
    ratings: RatingsConfig = _section(RatingsConfig(), "ratings")
    model: ModelConfig = _section(ModelConfig(), "model")
    optimizer: OptimizerConfig = _section(OptimizerConfig(), "optimizer")
    table: TableConfig = _section(TableConfig(), "table")
