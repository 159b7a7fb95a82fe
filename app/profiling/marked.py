"""Divide the time of steps by the events that mark them, where xprof's own result is unusable.

xprof ignores steps of `keras.callbacks.TensorBoard(profile_batch=...)`, as they are no roots (`_r`)
of its grouping. With a GPU, xprof counts from the first kernel to the last. So it misses the wait
for input before the first kernel.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

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
        covers[part] = _active_until(earlier)
    steps = []
    for event in events:
        if "step_num" in event.args:
            times = {"step": event.length, "other": 0.0}
            before = 0.0
            for part, active_until in covers.items():
                covered = active_until(event.start + event.length) - active_until(event.start)
                times[part] = float(covered - before)
                before = covered
            times["host_compute"] = event.length - before
            steps.append({part: time / 1e3 for part, time in times.items()})
    return steps


def _copies(event: Event) -> bool:
    """Return whether an event of a device is a copy from the host."""
    return event.name.lower().startswith(_COPY)


def _active_until(events: Sequence[Event]) -> Callable[[float], float]:
    """Return a function from a moment to how many microseconds before it any event was active."""
    moments, sums = [0.0], [0.0]  # between two of them, an event was always active, or never
    for event in sorted(events, key=lambda event: event.start):
        start = max(event.start, moments[-1])
        end = max(event.start + event.length, start)
        moments += [start, end]
        sums += [sums[-1], sums[-1] + end - start]
    return functools.partial(np.interp, xp=np.array(moments), fp=np.array(sums))
