"""The estimated rest of a run."""

from __future__ import annotations

import types

import pytest

from app.checkpoints.checkpoint import Position
from app.training import interval


# After 5 calls 5 are left, and those after the first took 4 seconds for the 5 so far. An interval
# of the first call alone knows no better than its 10 seconds.
@pytest.mark.parametrize(("closes", "expected"), [((5,), [4.0]), ((1, 5), [90.0, 5.0])])
def test_the_first_call_does_not_count_for_the_seconds_left(monkeypatch, closes, expected):
    """The first of 10 calls takes 10 seconds, each other one."""
    now = [0.0]
    monkeypatch.setattr(interval.time, "perf_counter", lambda: now[0])
    data = types.SimpleNamespace(epoch_size=100, unit="words")
    job = types.SimpleNamespace(data=data, loss_metrics=lambda loss: {})
    runner = types.SimpleNamespace(totals=lambda losses: (1.0, 1.0))
    position = Position(batches=10)
    measured = interval.Interval(job, 1, position, runner)
    left = []
    for number, _ in enumerate(measured.measure_waits(iter(range(10))), 1):
        now[0] += 10.0 if number == 1 else 1.0
        measured.losses.append(None)
        position.batch = number
        if number in closes:
            left.append(measured.close(position, 0.1)["seconds_left"])
    assert left == pytest.approx(expected)
