import logging

import pytest
import tensorflow as tf

from app.checkpoints.checkpoint import Position
from app.errors import UsageError
from app.training import profile_hooks
from app.training.profile_hooks import Profiler

CALL = 2  # steps


def spent(profiler, calls, first=0):
    """Runs calls, and returns what is recorded during each."""
    at, seen = Position(step=first), []
    for _ in profiler.trace(iter(range(calls)), at):
        seen.append(profiler._stop is not None)
        at.step += CALL
    profiler.close()
    return seen


@pytest.fixture
def recorder(monkeypatch):
    """What the profiler of TensorFlow was told, instead of doing it."""
    told = []
    monkeypatch.setattr(tf.profiler.experimental, "start", lambda folder: told.append("start"))
    monkeypatch.setattr(tf.profiler.experimental, "stop", lambda: told.append("stop"))
    monkeypatch.setattr(profile_hooks.time, "sleep", lambda seconds: None)
    return told


def at_steps(seen, first=0):
    return [first + CALL * call for call, recorded in enumerate(seen) if recorded]


@pytest.mark.parametrize(
    ("windows", "recorded", "told"),
    [
        ("", [], 0),
        ("4,8", [4, 6], 1),
        ("5,8", [6], 1),  # windows end and begin at the edges of calls
        ("4,7", [4, 6], 1),
        ("2,6,8,12", [2, 4, 8, 10], 2),
        ("16,99", [16, 18], 1),  # to the end of the run
    ],
)
def test_windows(tmp_path, recorder, windows, recorded, told):
    seen = spent(Profiler(windows, tmp_path), 10)
    assert at_steps(seen) == recorded
    assert recorder == ["start", "stop"] * told


def test_a_window_around_the_first_call_of_a_resumed_run_begins_after_it(tmp_path, recorder):
    """The first call is compiled, so that it tells nothing of the others."""
    seen = spent(Profiler("100,106", tmp_path), 5, first=100)
    assert at_steps(seen, 100) == [102, 104]


def test_a_profile_that_cannot_be_recorded_stops_nothing(tmp_path, monkeypatch, caplog):
    def refuse(folder):
        raise tf.errors.AlreadyExistsError(None, None, "Another profiler is running.\nMore.")

    monkeypatch.setattr(tf.profiler.experimental, "start", refuse)
    with caplog.at_level(logging.WARNING, logger="absl"):
        assert spent(Profiler("2,8", tmp_path), 6) == [False] * 6
    assert caplog.messages == [
        "the profile cannot be recorded; the run goes on: Another profiler is running."
    ]


@pytest.mark.parametrize(
    ("windows", "message"),
    [
        (
            "10,40",
            "steps 0 to 15 are the first call, which is compiled; give START,STOP from 16 to 99",
        ),
        ("16,100", "the run ends at about step 99; give START,STOP from 16 to 99"),
        ("20,40,200,300", "the run ends at about step 99"),
        ("17,31", "no call begins between 17 and 31: they begin every 16 steps"),
    ],
)
def test_windows_that_the_run_has_no_steps_for(windows, message):
    with pytest.raises(UsageError) as raised:
        profile_hooks.check(windows, first=0, call=16, last=99)
    assert str(raised.value).startswith(f"--profile_steps={windows}: {message}")


def test_windows_that_it_has_and_a_run_that_has_none():
    profile_hooks.check("16,99", first=0, call=16, last=99)
    profile_hooks.check("", first=0, call=16, last=3)
    with pytest.raises(UsageError, match="it is too short for a profile; give more --epochs"):
        profile_hooks.check("1,2", first=0, call=16, last=16)
