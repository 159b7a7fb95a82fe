"""What there is to train: all that the loop is to know of a task."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..checkpoints.workdir import Workdir
from ..models.base import Model
from ..optimizers.base import Optimizer
from ..tables.base import Kept, Table
from ..types import Batches
from . import memory_plan
from .staging import InPlace, Staging


@dataclasses.dataclass(frozen=True)
class Job:
    """What there is to train.

    learning_rate: from the share of the training that is done. expected_batches: about how many
    an epoch has. words: in an epoch, counted as in the corpus; or of another `unit`.
    micro_batches: of each step. is_arranged: whether the batches of an epoch depend on that. empty:
    what a call takes of a process whose share of the epoch is at its end before others'; None where
    all have as many batches. digest: a number that differs with what gives ids their meaning.
    of_loss: further values, by name, that follow from the mean loss. epoch_end: called after each
    epoch, for values by name. monitor: from those to the score that the best epoch has most of.
    memory: what takes it. extra_state: what else a checkpoint is to have. staging: what brings rows of the
    tables to the steps. summary: what the banner tells of the data. record: writes to the workdir,
    before the first step, what gives the rows a meaning. finish: from the workdir, once all epochs
    are done, to what the person is told.
    """

    model: Model
    tables: dict[str, Table]
    optimizer: Optimizer
    learning_rate: Callable[[float], float]
    batches: Batches
    expected_batches: int
    words: int
    steps_per_batch: int
    device: str
    micro_batches: int = 1
    is_arranged: bool = True
    empty: Any = None
    digest: int = 0
    of_loss: Callable[[float], dict[str, float]] = lambda loss: {}
    epoch_end: Callable[[], dict[str, float]] | None = None
    monitor: Callable[[Mapping[str, float]], float] | None = None
    memory: Sequence[memory_plan.Item] = ()
    extra_state: Mapping[str, Kept] = dataclasses.field(default_factory=dict)
    staging: InPlace | Staging | None = None
    unit: str = "words"
    summary: Sequence[tuple[str, str]] = ()
    record: Callable[[], None] = lambda: None
    finish: Callable[[Workdir], str] = lambda workdir: ""
