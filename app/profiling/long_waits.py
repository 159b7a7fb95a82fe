"""Find the steps that wait far longer for input than the others, as the first of an epoch may."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from . import marked
from .profiles import Event

_SHUFFLE = "Iterator::Shuffle"
# A wait is long if it takes as long as this many steps, and at least this many milliseconds.
_STEPS = 20
_LEAST_MILLISECONDS = 100.0


class LongWaits(NamedTuple):
    """The steps of a profile that wait far longer for input than the others.

    Attributes:
        steps: The numbers of these steps, as recorded.
        seconds: Their mean wait.
        share: The share of the time of all steps that is spent in these waits.
        shuffles: Whether the pipeline shuffles, and so may fill a buffer before it gives a batch.
    """

    steps: list[int]
    seconds: float
    share: float
    shuffles: bool

    def __str__(self) -> str:
        """Return a sentence for the user: how many steps wait, how long, and the likely cause."""
        count = len(self.steps)
        steps = "1 step waits" if count == 1 else f"{count} steps wait"
        cause = ", where shuffle fills its buffer" if self.shuffles else ""
        return (
            f"{steps} {self.seconds:.3g} s for input, {self.share:.0%} of the time; such a step is "
            f"normally the first of an epoch{cause}"
        )


def find_long_waits(events: Sequence[Event]) -> LongWaits | None:
    """Return the steps with a long wait for input, in ascending order, or None if there is none.

    A wait is long if it takes 20 times the median time of a step or more, and at least 100 ms.

    Args:
        events: The events of a profile.
    """
    divided = marked.divide_steps(events, starting=False)
    if not divided:
        return None
    numbers = [int(event.args["step_num"]) for event in events if "step_num" in event.args]
    least = max(_LEAST_MILLISECONDS, _STEPS * statistics.median(step["step"] for step in divided))
    long = [
        (number, step["input"])
        for number, step in sorted(zip(numbers, divided, strict=True), key=lambda pair: pair[0])
        if step["input"] >= least
    ]
    if not long:
        return None
    waited = sum(wait for _, wait in long)
    share = waited / sum(step["step"] for step in divided)
    shuffles = any(event.name.startswith(_SHUFFLE) for event in events)
    return LongWaits([number for number, _ in long], waited / len(long) / 1e3, share, shuffles)
