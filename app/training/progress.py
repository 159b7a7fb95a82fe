"""How far a run has come: whether it is finished, and the estimates that its position holds."""

from __future__ import annotations

import dataclasses

from absl import logging

from ..checkpoints.checkpoint import Position, newest_position
from ..checkpoints.workdir import Workdir, read_settings
from ..settings import RunConfig
from .job import Job


def is_finished(workdir: Workdir, asked: RunConfig | None = None) -> bool:
    """Return whether the run in a workdir is at its end: all epochs are made, or by --patience.

    It reads the flags and the newest position of the workdir, and changes nothing. Without a
    position the run is not at its end. A missing flag counts as 0, so a run with a position and
    without flags is at its end.

    Args:
        workdir: The workdir of the run; it may be empty.
        asked: If given, the flags must also have its values of --epochs and --patience. A run that
            is extended has other flags until its chief has written them.

    Raises:
        RunError: A checkpoint cannot be read.
        UsageError: The flags cannot be read.
    """
    position = newest_position(workdir.checkpoints)
    flags = read_settings(workdir.path)
    limits = tuple(flags.get(name, 0) for name in ("epochs", "patience"))
    is_other = asked is not None and limits != (asked.epochs, asked.patience)
    return position is not None and is_done(position, *limits) and not is_other


def is_done(position: Position, epochs: int, patience: int) -> bool:
    """Return whether a run is at its end: by its last epoch or by --patience.

    Args:
        position: Where the run is.
        epochs: The value of --epochs.
        patience: The value of --patience, 0 where it is not used.
    """
    return position.epoch >= epochs or 0 < patience <= position.since


def steps_left(position: Position | None, epochs: int, job: Job) -> int:
    """Return about how many steps a run still has to make.

    Args:
        position: The position of the newest checkpoint, or None; it is not changed.
        epochs: The value of --epochs.
        job: Estimates the batches.
    """
    position = dataclasses.replace(position) if position else Position()
    expect_batches(position, job)
    return round((epochs - position.done) * position.batches * job.data.steps_per_batch)


def expect_batches(position: Position, job: Job) -> None:
    """Set `batches` and `expected` to the job's estimate, if that differs from `expected`.

    If it does not differ, `batches` stays: it may be the exact number of a finished epoch.

    Args:
        position: Where the run is; changed in place.
        job: Estimates the batches.
    """
    if position.expected != job.data.expected_batches:
        position.batches = position.expected = job.data.expected_batches


def set_micro_batches(position: Position, job: Job) -> None:
    """Store the job's number of micro-batches, and warn if an epoch was begun with another one.

    The warning is logged only if the order of the data depends on the number.

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
