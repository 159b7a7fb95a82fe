"""Steps that xprof does not see, as only their number marks them: those of `keras.fit`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from app.diagnosis.profiles import Event

# What waits for the next batch, wherever it runs.
_WAITING = "IteratorGetNextOp::DoCompute"


def steps(events: Sequence[Event], columns: Sequence[str]) -> list[dict[str, float]]:
    """Milliseconds of each step by xprof's columns: waiting for input, device, host, and all.

    `keras.callbacks.TensorBoard(profile_batch=...)` marks its steps with `step_num`, but not as
    roots (`_r`), by which xprof tells steps.
    """
    found = []
    for event in events:
        if "step_num" in event.args:
            waiting = _covered(event, (e for e in events if e.name == _WAITING))
            device = _covered(event, (e for e in events if e.process.startswith("/device:")))
            times = {
                "infeedTimeMs": waiting,
                "deviceComputeTimeMs": min(device, event.length - waiting),
                "stepTimeMs": event.length,
            }
            times["hostComputeTimeMs"] = 2 * event.length - sum(times.values())
            found.append(
                dict.fromkeys(columns, 0.0) | {name: time / 1e3 for name, time in times.items()}
            )
    return found


def _covered(step: Event, events: Iterable[Event]) -> float:
    """Microseconds of a step that some of the events cover."""
    end, covered = step.start, 0.0
    for event in sorted(events, key=lambda event: event.start):
        start = max(event.start, end)
        end = max(end, min(event.start + event.length, step.start + step.length))
        covered += max(0.0, end - start)
    return covered
