from __future__ import annotations

import subprocess
import sys

import pytest

from app.profiling import marked, profile_report, profiles
from tests.profiling.events import event

KERAS = """
import sys, time, numpy, keras, tensorflow as tf
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
examples = tf.data.Dataset.from_tensor_slices((numpy.ones((4000, 4)), numpy.ones(4000)))
def sleep(x):
    time.sleep(5e-4)
    return x
def slow(x, y):
    return tf.numpy_function(sleep, [x], tf.float64), y
def shaped(x, y):
    return tf.ensure_shape(x, [4]), y
batches = examples.map(slow, name="slow").map(shaped).batch(32)
board = keras.callbacks.TensorBoard(sys.argv[1], profile_batch=(20, 60))
model.fit(batches, verbose=0, callbacks=[board])
"""


def stream(name, start, length, line="Stream #14(Compute)"):
    return event(name, start, length, line, "/device:GPU:0")


EVENTS = [
    event("step", 0, 1000, step_num="1"),
    event("step", 1000, 2000, step_num="2"),
    event("IteratorGetNextOp::DoCompute", 900, 400),  # across both
    event("IteratorGetNextOp::DoCompute", 1200, 300),  # counted once
    stream("kernel", 1400, 700),  # while the host waits the device works
    stream("MemcpyH2D", 2050, 150),
    stream("2", 1000, 2000, "Steps"),  # what xprof derives from the others
    event("ExecutorState::Process", 1300, 1000),
]


@pytest.mark.parametrize(("starting", "launch"), [(True, 100), (False, 0)])
def test_a_moment_counts_once(starting, launch):
    first, second = marked.divide_steps(EVENTS, starting)
    none = dict.fromkeys(("device_compute", "host_to_device", "launch", "other"), 0.0)
    assert first == pytest.approx(none | {"step": 1.0, "input": 0.1, "host_compute": 0.9})
    assert second == pytest.approx(
        {
            "step": 2.0,
            "device_compute": 0.7,
            "host_to_device": 0.1,
            "input": 0.4,
            "launch": launch / 1000,
            "host_compute": (800 - launch) / 1000,
            "other": 0.0,
        }
    )


def test_no_step():
    assert marked.divide_steps([event("IteratorGetNextOp::DoCompute", 0, 5)], True) == []


@pytest.mark.slow
def test_a_profile_of_keras(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-c", KERAS, str(tmp_path)], capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    found = profile_report.diagnose(profiles.find_newest(tmp_path), None)
    assert found.division.trusted and 30 < found.division.calls <= 42
    assert found.division.verdict == "input-bound"
    assert found.stage.name == "slow"
    assert found.changes[0].what == "batch() before the map, or TensorFlow operations in it"
    assert found.changes[0].speedup is None
    assert "change     batch() before the map" in profile_report.text(found)
