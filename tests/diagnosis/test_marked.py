from __future__ import annotations

import subprocess
import sys

import pytest

from app.diagnosis import marked, profiles, report
from tests.diagnosis.events import event

COLUMNS = ("infeedTimeMs", "deviceComputeTimeMs", "hostComputeTimeMs", "otherTimeMs")

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


def test_steps_are_waits_devices_and_the_rest_of_the_host():
    found = marked.steps(
        [
            event("step", 0, 1000, step_num="1"),
            event("step", 1000, 2000, step_num="2"),
            event("IteratorGetNextOp::DoCompute", 900, 400),  # across both
            event("IteratorGetNextOp::DoCompute", 1200, 300),  # counted once
            event("kernel", 1800, 700, "stream", "/device:GPU:0"),
        ],
        COLUMNS,
    )
    assert [[step[name] for name in COLUMNS] for step in found] == [
        pytest.approx([0.1, 0.0, 0.9, 0.0]),
        pytest.approx([0.5, 0.7, 0.8, 0.0]),
    ]
    assert [step["stepTimeMs"] for step in found] == [1.0, 2.0]


def test_no_step():
    assert marked.steps([event("IteratorGetNextOp::DoCompute", 0, 5)], COLUMNS) == []


def test_a_profile_of_keras(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-c", KERAS, str(tmp_path)], capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    found = report.diagnose(profiles.newest(tmp_path), None)
    assert found.division.trusted and 30 < found.division.calls <= 42
    assert found.division.verdict == "input-bound"
    assert found.stage.name == "slow"
    assert found.changes[0].what == "num_parallel_calls=tf.data.AUTOTUNE"
