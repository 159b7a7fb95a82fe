"""A proposed change of a run, and the time that a change may save.

A saving is a share of the time of a step. It is at most what the profile allows: work that is done
at the same time saves no more than the shorter part, and all operations need the cores.
"""

from __future__ import annotations

from typing import NamedTuple

from .division import Division
from .stages import Stage


class Change(NamedTuple):
    """A proposed change.

    Attributes:
        what: A flag with its value, a command, or a call of tf.data or Keras.
        speedup: The greatest speed to expect after the change, over the speed before it. None if
            the profile cannot tell.
        why: The reason, a sentence.
        new_workdir: Whether the change needs a new workdir, as files in it depend on the flag.
        condition: What the profile cannot tell and must be so for the change to help; empty if
            nothing.
    """

    what: str
    speedup: float | None
    why: str
    new_workdir: bool = False
    condition: str = ""


def speedup(saved: float) -> float:
    """Return how many times as fast a step is that saves a share of its time."""
    return 1 / max(1 - saved, 0.01)


def saved_by_cache(division: Division) -> float:
    """Return the saving where the input costs nothing any more: no wait, and cores for the step."""
    return division.shares["input"] + division.competing


def saved_by_overlap(division: Division) -> float:
    """Return the saving where the input is made while the steps run."""
    waiting = division.shares["input"]
    return max(min(waiting, 1 - waiting, 1 - division.crowding), 0.0)


def saved_by_parallel_calls(division: Division, stage: Stage, calls: int) -> float:
    """Return the saving where a stage of the input makes more calls at the same time.

    It is none where steps lose more to operations of the input than they wait for it: more calls
    would take more of the cores (`data/benchmarks/README.md`).

    Args:
        division: The parts of a step.
        stage: The stage, with calls at the same time as recorded.
        calls: The calls at the same time after the change.
    """
    faster = min(stage.seconds / (division.seconds or 1.0), 1.0) * (
        1 - max(stage.parallelism, 1) / calls
    )
    waited = division.shares["input"] - division.competing
    return max(min(faster, waited, 1 - division.crowding), 0.0)


def saved_by_fewer_calls(share: float, times: int) -> float:
    """Return the saving where work that takes a share of the time is done so many times less."""
    return share * (1 - 1 / times)
