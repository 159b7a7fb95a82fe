"""float16 and bfloat16 models with tables, and the loss scale of float16."""

import concurrent.futures
import multiprocessing

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.keras import SGD, ClassSoftmax, LazyAdam, LossScaleOptimizer, RowEmbedding, RowwiseAdagrad
from app.system.machine import resident_bytes
from tests import processes
from tests.keras import table_models as models
from tests.keras.models import BATCH, fit, make_data, make_model, near
from tests.reference.dense_embedding import DenseEmbedding

half = pytest.mark.parametrize("policy", ["mixed_float16"], indirect=True)


def first_batch():
    (left, right), y = make_data()
    return (left[:BATCH], right[:BATCH]), y[:BATCH]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [pytest.param("float16", marks=pytest.mark.slow), "bfloat16"])
def test_the_state_of_a_narrow_table_is_float32(dtype):
    """float16 has no second moment this small, and bfloat16 cannot let it fall."""
    rows = {}
    for policy in ("float32", dtype):
        layer = RowEmbedding(5, 4, embeddings_initializer="ones", dtype=policy)
        layer.build()
        optimizer = LazyAdam(1e-2)
        optimizer.build(layer.trainable_variables)

        @tf.function(autograph=False)
        def move(slope, optimizer=optimizer, layer=layer):
            gradient = tf.IndexedSlices(slope, [2], [5, 4])
            optimizer.apply([gradient], layer.trainable_variables)

        for step in range(200):
            move(tf.constant(1e-3 if step < 100 else -1e-4, policy, (1, 4)))
        assert {slot.dtype for slot in optimizer._momentums + optimizer._velocities} == {"float32"}
        rows[policy] = layer.get_weights()[0][2].astype("float32")
    np.testing.assert_allclose(rows[dtype], rows["float32"], atol=0.2)


def held(model):
    return {v.path: v.numpy() for v in (*model.variables, *model.optimizer.variables)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy",
    ["mixed_float16", pytest.param("mixed_bfloat16", marks=pytest.mark.slow)],
    indirect=True,
)
def test_it_trains_as_the_dense_model_in_the_same_precision(policy):
    ours, theirs = LazyAdam(0.02), keras.optimizers.Adam(0.02)
    if policy == "mixed_float16":
        ours, theirs = LossScaleOptimizer(ours), keras.optimizers.LossScaleOptimizer(theirs)
    models = make_model(ours), make_model(theirs, DenseEmbedding, run_eagerly=True)
    before = models[0].get_weights()[0]
    losses = [fit(model, epochs=4).history["loss"] for model in models]
    assert models[0].optimizer is ours  # not wrapped once more
    assert models[0].get_layer("words").compute_dtype == policy.removeprefix("mixed_")
    assert models[0].get_layer("words").embeddings.dtype == "float32"
    assert np.abs(models[0].get_weights()[0] - before).max() > 0.1
    near(*models, error=1e-2)
    np.testing.assert_allclose(*losses, rtol=1e-2)


@pytest.mark.slow
@half
@pytest.mark.parametrize("run_eagerly", [False, True])
def test_a_step_that_overflows_is_skipped_and_halves_the_scale(policy, run_eagerly):
    optimizer = LossScaleOptimizer(LazyAdam(0.1), initial_scale=256.0, dynamic_growth_steps=2)
    model = make_model(optimizer, run_eagerly=run_eagerly)
    x, y = first_batch()
    model.train_on_batch(x, y)
    before = held(model)
    model.train_on_batch(x, np.full_like(y, 1e6))
    after = held(model)
    changed = {path for path in before if after[path].tobytes() != before[path].tobytes()}
    assert changed == {f"{optimizer.name}/{v}" for v in ("dynamic_scale", "step_counter")}
    assert optimizer.dynamic_scale.numpy() == 128.0
    for _ in range(2):
        model.train_on_batch(x, y)
    assert optimizer.dynamic_scale.numpy() == 256.0  # grown again
    assert (model.get_weights()[0] != before["words/embeddings"]).any(axis=1).all()


@half
def test_overflow_in_one_table_alone_is_seen(policy):
    optimizer = LossScaleOptimizer(LazyAdam(0.1))
    variables = [keras.Variable(tf.ones([4, 2])), keras.Variable(tf.ones([2]))]
    for number, bad in enumerate((np.inf, np.nan, 1.0)):
        gradient = tf.IndexedSlices(
            tf.constant([[1.0, bad], [1.0, 1.0]]), tf.constant([1, 1]), [4, 2]
        )
        optimizer.apply([gradient, tf.ones([2])], variables)
        assert int(optimizer.iterations) == (number == 2)
        moved = [bool((v.numpy() != 1).any()) for v in variables]
        assert moved == [number == 2] * 2


# Tables of 16 bits: stochastic rounding in the optimizers, and memory when a layer is made.


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
