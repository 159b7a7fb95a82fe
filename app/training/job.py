"""The job: the model, tables, data and settings that one task gives to the training loop."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..checkpoints.workdir import Workdir
from ..models.base import Model
from ..optimizers.base import Optimizer
from ..tables.base import Checkpointable, Table
from ..types import Batches
from . import memory_plan
from .staging import InPlace, Staging


@dataclasses.dataclass(frozen=True)
class Job:
    """Everything that the training loop needs to know of a task.

    Attributes:
        model: The model to train.
        tables: Its tables by name.
        optimizer: Changes the rows.
        learning_rate: Returns the learning rate at a given fraction of the training, 0 to 1.
        batches: Yields the batches of the given epochs (see `Batches`).
        expected_batches: The estimated number of batches in an epoch.
        words: The number of words in an epoch, counted as in the corpus, or of other `unit`s.
        steps_per_batch: The number of steps S in a batch.
        device: The device of the steps.
        micro_batches: The number of micro-batches in a step.
        is_arranged: Whether the batches of an epoch depend on `micro_batches`.
        empty: A micro-batch (S, ...) of padding, for a process that has no data left in an epoch
            while others have. None where every process makes the whole batches.
        digest: A checksum of everything that gives the ids their meaning.
        of_loss: Returns further metrics that follow from the mean loss, by name.
        epoch_end: Returns scores by name after each epoch. None where nothing is scored.
        monitor: Returns the one number of these scores that --patience maximizes.
        memory: The planned memory.
        extra_state: Further objects to save in each checkpoint, by name.
        staging: Brings rows of the tables to the device before the steps need them.
        unit: What `words` counts.
        summary: Lines for the banner about the data: a title and a text each.
        record: Writes the files to the workdir that give the rows their meaning. Called before
            the first step.
        finish: Returns the text for the user once all epochs are done; called with the workdir.
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
    extra_state: Mapping[str, Checkpointable] = dataclasses.field(default_factory=dict)
    staging: InPlace | Staging | None = None
    unit: str = "words"
    summary: Sequence[tuple[str, str]] = ()
    record: Callable[[], None] = lambda: None
    finish: Callable[[Workdir], str] = lambda workdir: ""
