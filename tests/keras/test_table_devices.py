"""A table that XLA cannot reach is refused in words that name the layer and the remedy."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest
import tensorflow as tf

from app.keras import DynamicEmbedding
from tests.keras import table_models as models

ROOT = pathlib.Path(__file__).parents[2]
# Prints the error for each place of the table and of the step, with two CPUs.
PROGRAM = """
import json, pathlib, tempfile, tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, 2 * [tf.config.LogicalDeviceConfiguration()])
from tests.keras import table_models as models
errors = {}
for kind in ("device", "host"):
    for table, step in (("CPU:1", "CPU:0"), ("CPU:0", "CPU:1"), ("CPU:1", "CPU:1")):
        with tf.device(table):
            layer = models.make_layer(kind, None, name="words")
        function = tf.function(layer.call, jit_compile=True, autograph=False)
        with tf.device(step):
            try:
                function(tf.constant([1, 2]))
            except ValueError as error:
                errors[f"{kind} {table} {step}"] = str(error)
print(json.dumps(errors))
"""


@pytest.mark.slow  # a process of its own: the number of devices is fixed for the life of a process
def test_a_table_on_another_device():
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    errors = json.loads(ended.stdout.splitlines()[-1])
    words = (
        "words: the table is on {}, and XLA compiles the step for {}, which cannot reach it; leave "
        "out jit_compile, or make the layer with table='device' under tf.device('{}')"
    )
    assert errors == {
        # Rows in host memory are on the first CPU. Their handle is where the layer was made.
        "device CPU:1 CPU:0": words.format("CPU:1", "CPU:0", "CPU:0"),
        "device CPU:0 CPU:1": words.format("CPU:0", "CPU:1", "CPU:1"),
        "host CPU:1 CPU:0": words.format("CPU:1", "CPU:0", "CPU:0"),
        "host CPU:0 CPU:1": words.format("CPU:0", "CPU:1", "CPU:1"),
        "host CPU:1 CPU:1": words.format("CPU:0", "CPU:1", "CPU:1"),
    }


@pytest.mark.parametrize("kind", ["file", "sharded", "int64"])
def test_a_loop_that_xla_cannot_compile(kind, tmp_path):
    if kind == "int64":
        layer = DynamicEmbedding(3, name="words")
        layer.build()
    else:
        layer = models.make_layer(kind, tmp_path, name="words")
    function = tf.function(layer.call, jit_compile=True, autograph=False)
    with pytest.raises(ValueError, match=r"^words: XLA cannot compile .*; leave out jit_compile$"):
        function(tf.constant([1, 2], tf.int64))


def test_where_there_is_a_gpu_keras_does_not_compile_a_table_in_host_memory(monkeypatch):
    assert models.make_layer("host", None).supports_jit
    gpu = [tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")]
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: gpu)
    assert not models.RowEmbedding(5, 2, table="host").supports_jit
    assert not models.RowEmbedding(5, 2, table="host", hot_rows=3).supports_jit
    assert models.RowEmbedding(5, 2).supports_jit
