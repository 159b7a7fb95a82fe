"""How far a run has come: whether it is finished, and what its position counts on."""

from __future__ import annotations

from absl import logging

from ..checkpoints.checkpoint import Position, newest_position
from ..checkpoints.workdir import Workdir, read_flags
from .job import Job


def is_finished(workdir: Workdir, epochs: int | None = None) -> bool:
    """Return whether the run in a workdir has made all epochs that its flags ask for.

    Args:
        workdir: The workdir of the run; it may be empty.
        epochs: If given, the flags must also ask for this number of epochs.
    """
    position = newest_position(workdir.checkpoints)
    flags = read_flags(workdir.flags)
    asked, patience = (int(flags.get(name, 0)) for name in ("epochs", "patience"))
    return position is not None and is_done(position, asked, patience) and epochs in (None, asked)


def is_done(position: Position, epochs: int, patience: int) -> bool:
    """Return whether a run is at its end.

    Args:
        position: Where the run is.
        epochs: The value of --epochs.
        patience: The value of --patience, 0 where it is not used.
    """
    return position.epoch >= epochs or 0 < patience <= position.since


def expect_batches(position: Position, job: Job) -> None:
    """Set the batches of an epoch to the job's estimate, if no epoch of this text was counted.

    Args:
        position: Where the run is; changed in place.
        job: Estimates the batches.
    """
    if position.expected != job.data.expected_batches:
        position.batches = position.expected = job.data.expected_batches


def set_micro_batches(position: Position, job: Job) -> None:
    """Record the job's micro-batches, and warn if an epoch was begun with another number of them.

    Args:
        position: Where the run is; changed in place.
        job: Has the number of micro-batches.
    """
    if (
        job.data.depends_on_micro_batches
        and position.batch
        and position.micro_batches != job.placed.micro_batches
    ):
        logging.warning(
            "this epoch was begun with %d micro-batches a step, and goes on with %d: some rows of "
            "it come twice or not at all; the next epochs are complete",
            *(position.micro_batches, job.placed.micro_batches),
        )
    position.micro_batches = job.placed.micro_batches
