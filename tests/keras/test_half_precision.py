"""Tables of 16 bits: stochastic rounding in the optimizers, and memory when a layer is made."""

from __future__ import annotations

import concurrent.futures
import multiprocessing

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.keras import SGD, ClassSoftmax, LazyAdam, RowEmbedding, RowwiseAdagrad
from app.system.machine import resident_bytes
from tests import processes
from tests.keras import table_models as models

NEAREST = {"rounding": "nearest"}


def after_small_updates(optimizer, kind, folder, **compiled):
    """Mean of a row of ones, in bfloat16, after 1,000 updates of -1e-4."""
    options = {"table_file": str(folder / "rows.bin")} if kind == "file" else {}
    layer = RowEmbedding(4, 64, table=kind, dtype="bfloat16", **options)
    layer.build()
    layer.set_weights([np.ones((4, 64))])

    @tf.function(autograph=False, **compiled)
    def update():
        gradient = tf.IndexedSlices(tf.fill((2, 64), 5e-4), tf.constant([2, 2]), (4, 64))
        optimizer.apply([gradient], [layer.trainable_variables[0]])

    for _ in range(1_000):
        update()
    rows = layer.get_weights()[0].astype(np.float32)
    np.testing.assert_array_equal(rows[[0, 1, 3]], 1.0)
    return rows[2].mean()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "compiled"), [("device", {}), ("device", {"jit_compile": True}), ("file", {})]
)
def test_small_updates_are_not_lost(kind, compiled, tmp_path):
    found = after_small_updates(SGD(0.1), kind, tmp_path, **compiled)
    assert found == pytest.approx(0.9, abs=0.01)


def test_rounding_to_the_nearest_loses_small_updates(tmp_path):
    assert after_small_updates(SGD(0.1, **NEAREST), "device", tmp_path) == 1.0


def trained(kind, folder, dtype, optimizer=LazyAdam, **compiled):
    layer = models.make_layer(kind, folder, dtype=dtype)
    model = models.make_model(layer, optimizer(0.01), **compiled)
    models.fit(model)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_table_on_the_host_ends_as_that_on_the_device_under_xla(dtype, tmp_path):
    host, device = (
        trained(kind, tmp_path, dtype, RowwiseAdagrad, jit_compile=True)
        for kind in ("host", "device")
    )
    assert models.state(host) == models.state(device)


@pytest.mark.slow
def test_a_resumed_run_draws_as_if_it_had_never_stopped(tmp_path):
    model = trained("device", tmp_path, "bfloat16")
    model.save(tmp_path / "model.keras")
    models.fit(model)
    loaded = keras.models.load_model(tmp_path / "model.keras")
    models.fit(loaded)
    assert models.state(loaded) == models.state(model)


def test_the_rounding_is_in_the_configuration():
    assert SGD(0.1).get_config()["rounding"] == "stochastic"
    copy = LazyAdam.from_config(LazyAdam(0.1, **NEAREST).get_config())
    assert copy.rounding == "nearest"
    with pytest.raises(ValueError, match="rounding='up'; give one of stochastic, nearest"):
        SGD(0.1, rounding="up")


def test_a_dense_layer_in_half_precision_is_updated_by_keras():
    ends = []
    for make in (SGD, keras.optimizers.SGD):
        kernel = keras.Variable(np.ones((3, 2)), dtype="bfloat16", name="kernel")
        make(0.1).apply([tf.fill((3, 2), tf.constant(0.3, tf.bfloat16))], [kernel])
        ends.append(kernel.numpy().tobytes())
    assert ends[0] == ends[1]


ROWS, COLUMNS = 1_000_000, 128


def make_embedding(kind, initializer="uniform"):
    layer = RowEmbedding(ROWS, COLUMNS, initializer, table=kind, dtype="bfloat16")
    layer.build()
    return layer


def make_softmax():
    layer = ClassSoftmax(ROWS, use_bias=False, dtype="bfloat16")
    layer.build((None, COLUMNS))
    return layer


LAYERS = {
    "device": lambda: make_embedding("device"),
    "constant": lambda: make_embedding("device", "ones"),
    "host": lambda: make_embedding("host"),
    "softmax": make_softmax,
}


def peak_memory(name):
    """The most memory that this process takes to make a layer, and the dtype of its table."""
    before = resident_bytes()
    with processes.peak_memory() as peak:
        layer = LAYERS[name]()
    return peak[0] - before, layer.weights[0].dtype


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_takes_the_memory_of_its_table_alone(name):
    # A process of its own: TensorFlow may keep memory that it freed, and use it again.
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, context) as process:
        peak, dtype = process.submit(peak_memory, name).result()
    assert dtype == "bfloat16"
    assert (table := ROWS * COLUMNS * 2) <= peak < 1.5 * table
