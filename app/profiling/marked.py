"""Divide the time of steps by the events that mark them, where xprof's own result is unusable.

xprof ignores steps of `keras.callbacks.TensorBoard(profile_batch=...)`, as they are no roots (`_r`)
of its grouping. With a GPU, xprof counts from the first kernel to the last. So it misses the wait
for input before the first kernel.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Sequence

from .profiles import Event, on_stream

# The event of a wait for the next batch.
_WAITING = "IteratorGetNextOp::DoCompute"
# Prefixes of events that start operations: TensorFlow's executor, and CUDA's calls.
_STARTING = ("ExecutorState::", "cuLaunch", "cudaLaunch")
_COPY = "memcpyh2d"  # CUPTI's name of a copy from the host, in lower case


def divide_steps(events: Sequence[Event], starting: bool) -> list[dict[str, float]]:
    """Divide the time of each marked step into the parts of `division.Division`.

    Each moment belongs to the first active part, in this order: device, copy, wait for input, start
    of operations. The remaining time is `host_compute`; `other` is 0.

    Args:
        events: The events of the profile. A marked step has the argument `step_num`.
        starting: Whether the start of operations is the part `launch`; else `launch` is 0.

    Returns:
        For each step, the milliseconds of each part, and of the whole step as `step`.
    """
    on_device = [event for event in events if on_stream(event)]
    layers = {
        "device_compute": [event for event in on_device if not _copies(event)],
        "host_to_device": [event for event in on_device if _copies(event)],
        "input": [event for event in events if event.name == _WAITING],
        "launch": [e for e in events if starting and e.name.startswith(_STARTING)],
    }
    earlier: list[Event] = []
    covers = {}
    for part, layer in layers.items():
        earlier = earlier + layer
        covers[part] = _Cover(earlier)
    steps = []
    for event in events:
        if "step_num" in event.args:
            times = {"step": event.length, "other": 0.0}
            before = 0.0
            for part, cover in covers.items():
                covered = cover.within(event.start, event.start + event.length)
                times[part] = covered - before
                before = covered
            times["host_compute"] = event.length - before
            steps.append({part: time / 1e3 for part, time in times.items()})
    return steps


def _copies(event: Event) -> bool:
    """Return whether an event of a device is a copy from the host."""
    return event.name.lower().startswith(_COPY)


class _Cover:
    """The times in which at least one of some events was active."""

    def __init__(self, events: Iterable[Event]):
        spans: list[list[float]] = []
        for event in sorted(events, key=lambda event: event.start):
            end = event.start + event.length
            if spans and event.start <= spans[-1][1]:
                spans[-1][1] = max(spans[-1][1], end)
            else:
                spans.append([event.start, end])
        self._starts = [start for start, _ in spans]
        self._ends = [end for _, end in spans]
        self._sums = [0.0, *itertools.accumulate(end - start for start, end in spans)]

    def within(self, start: float, end: float) -> float:
        """Return for how many microseconds between two moments an event was active."""
        return self._until(end) - self._until(start)

    def _until(self, moment: float) -> float:
        """Return for how many microseconds before a moment an event was active."""
        number = bisect.bisect_right(self._starts, moment)
        beyond = max(0.0, self._ends[number - 1] - moment) if number else 0.0
        return self._sums[number] - beyond
