"""The job: the model, tables and data that one task gives to the training loop."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..checkpoints.growth import Growth
from ..checkpoints.workdir import Workdir
from ..models.base import Model
from ..optimizers.base import Optimizer
from ..tables.base import Checkpointable, Table
from ..tables.device import InPlace
from ..tables.memory import Item
from ..types import Batches

# Returns the scores by name, the main one first. It calls its argument between the parts of its
# work, and passes on the StoppedError that this raises once the process is asked to stop.
Scores = Callable[[Callable[[], None]], dict[str, float]]


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """The batches of a job, and the facts about them.

    Attributes:
        batches: Yields the batches of the given epochs (see `Batches`).
        expected_batches: The estimated number of batches in an epoch.
        steps_per_batch: The number of steps S in a batch.
        epoch_size: The number of units in an epoch. Words are counted as in the corpus.
        unit: The unit of `epoch_size`.
        batch_unit: The unit of --batch_tokens, for the banner.
        empty: A micro-batch (S, ...) of padding, for a process that has no data left in an epoch
            while others have. None where every process makes the whole batches.
        depends_on_micro_batches: Whether the batches of an epoch depend on the number of
            micro-batches, so that an epoch should end with the number that it was begun with.
        digest: A checksum of everything that gives the ids their meaning. The workers of
            --strategy=multi_worker compare theirs.
        summary: Lines for the banner: a title and a text each.
        record: Writes the files to the workdir that give the ids their meaning. Called before
            the first step of a run, also of a resumed one.
    """

    batches: Batches
    expected_batches: int
    steps_per_batch: int
    epoch_size: int
    unit: str = "words"
    batch_unit: str = "words"
    empty: Any = None
    depends_on_micro_batches: bool = True
    digest: int = 0
    summary: Sequence[tuple[str, str]] = ()
    record: Callable[[], None] = lambda: None


@dataclasses.dataclass(frozen=True)
class PlacedTables:
    """The tables of a job in their places, as `assembly.placing` makes them.

    Attributes:
        tables: The tables by name.
        device: The device of the steps.
        micro_batches: The number of micro-batches in a step.
        staging: Brings rows of the tables to the device before the steps need them. By default
            the steps train on the tables themselves.
        memory: The planned memory.
        uncompiled: Why XLA compiles no step on a GPU, as far as it is known before the first;
            empty if it does.
    """

    tables: dict[str, Table]
    device: str
    micro_batches: int = 1
    staging: InPlace | None = None
    memory: Sequence[Item] = ()
    uncompiled: str = ""


@dataclasses.dataclass(frozen=True)
class Evaluator:
    """Scores the tables of a job after each epoch.

    Attributes:
        scores: Returns the scores (see `Scores`).
        monitor: Function from the scores of an epoch to the number that --patience maximizes; by
            default the main score.
    """

    scores: Scores
    monitor: Callable[[Mapping[str, float]], float] = lambda scores: next(iter(scores.values()))


@dataclasses.dataclass(frozen=True)
class Job:
    """Everything that the training loop needs to know of a task.

    Attributes:
        model: The model to train.
        placed: Its tables.
        optimizer: Changes the rows.
        learning_rate: Returns the learning rate at a given fraction of the training, 0 to 1.
        data: The batches to train on.
        evaluator: Scores the tables after each epoch. None where nothing is scored.
        watch: Reads rows after an epoch, and returns a function that scores them on another thread
            while the steps go on, with the scores by name. None where nothing is scored so.
        loss_metrics: Returns further metrics that follow from the mean loss, by name.
        extra_state: Further objects to save in each checkpoint, by name.
        growth: The new ids of the rows of the workdir (--grow_vocab). None if no name is new.
        finish: Returns the text for the user once all epochs are done; called with the workdir.
            A function and no method, as the job and its tables are freed before.
    """

    model: Model
    placed: PlacedTables
    optimizer: Optimizer
    learning_rate: Callable[[float], float]
    data: TrainingData
    evaluator: Evaluator | None = None
    watch: Callable[[], Callable[[], dict[str, float]]] | None = None
    loss_metrics: Callable[[float], dict[str, float]] = lambda loss: {}
    extra_state: Mapping[str, Checkpointable] = dataclasses.field(default_factory=dict)
    growth: Growth | None = None
    finish: Callable[[Workdir], str] = lambda workdir: ""
