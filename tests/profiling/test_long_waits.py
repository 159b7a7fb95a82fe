from __future__ import annotations

import pytest

from app.profiling.long_waits import find_long_waits
from tests.profiling.events import event, iterator


def recorded(wait, steps=12):
    """Two epochs of Keras, whose numbers of steps begin with 0; the first step waits."""
    events, now = [], 0.0
    for _ in range(2):
        for number in range(steps):
            waiting = wait if number == 0 else 100.0
            events.append(event("Profiled batch", now, waiting + 2000, step_num=str(number)))
            events.append(event("IteratorGetNextOp::DoCompute", now + 50, waiting, "pool"))
            now += waiting + 2500
    return events


def test_the_first_step_of_an_epoch_waits_for_a_shuffle():
    shuffle = iterator("Root::Shuffle", 0, 9, id=1)
    found = find_long_waits([*recorded(8e6), shuffle])
    assert found.steps == [0, 0] and found.seconds == pytest.approx(8.0) and found.shuffles
    assert found.share == pytest.approx(16e6 / (16e6 + 24 * 2000 + 22 * 100))
    assert str(found) == (
        "2 steps wait 8 s for input, 100% of the time; such a step is normally the first of an "
        "epoch, where shuffle fills its buffer"
    )
    assert not find_long_waits(recorded(8e6)).shuffles


def test_no_step_waits_far_longer_than_others():
    assert find_long_waits(recorded(30e3)) is None
    # Each step waits as long.
    assert find_long_waits(recorded(8e6, steps=1)) is None
    assert find_long_waits([]) is None
