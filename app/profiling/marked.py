"""Steps as they were marked by their number, where xprof does not divide them.

It does not for steps that `keras.callbacks.TensorBoard(profile_batch=...)` marks, which are no
roots (`_r`) of its grouping; and where there is a GPU it counts from the first kernel to the last,
so that a step that waits for its input before its first kernel seems not to wait.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Sequence

from .profiles import Event, on_stream

# What waits for the next batch, wherever it runs.
_WAITING = "IteratorGetNextOp::DoCompute"
# What starts operations: TensorFlow's executor, and CUDA's calls.
_STARTING = ("ExecutorState::", "cuLaunch", "cudaLaunch")
_COPY = "memcpyh2d"  # CUPTI's name of a copy from the host, in lower case


def steps(events: Sequence[Event], starting: bool) -> list[dict[str, float]]:
    """Milliseconds of each step by part of `division.Division`, and `step`, all of it.

    A moment counts for the first of these that is going on: device, copy, wait, start; what is left
    is the host's. starting: whether what starts operations is told from the host.
    """
    on_device = [event for event in events if on_stream(event)]
    layers = {
        "device_compute": [event for event in on_device if not _copies(event)],
        "host_to_device": [event for event in on_device if _copies(event)],
        "input": [event for event in events if event.name == _WAITING],
        "launch": [e for e in events if starting and e.name.startswith(_STARTING)],
    }
    so_far: list[Event] = []
    covers = {}
    for part, layer in layers.items():
        so_far = so_far + layer
        covers[part] = _Cover(so_far)
    found = []
    for event in events:
        if "step_num" in event.args:
            times = {"step": event.length, "other": 0.0}
            before = 0.0
            for part, cover in covers.items():
                covered = cover.within(event.start, event.start + event.length)
                times[part] = covered - before
                before = covered
            times["host_compute"] = event.length - before
            found.append({part: time / 1e3 for part, time in times.items()})
    return found


def _copies(event: Event) -> bool:
    return event.name.lower().startswith(_COPY)


class _Cover:
    """The moments that some events cover together."""

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
        """How much of the time between two moments they cover."""
        return self._until(end) - self._until(start)

    def _until(self, moment: float) -> float:
        number = bisect.bisect_right(self._starts, moment)
        beyond = max(0.0, self._ends[number - 1] - moment) if number else 0.0
        return self._sums[number] - beyond
