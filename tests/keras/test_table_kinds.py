"""`RowEmbedding` with its table on the host, in a file or in shards trains as on the device."""

from __future__ import annotations

import gc

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.keras import SGD, LazyAdam, RowEmbeddingReduce
from app.keras.tables import table_variable
from tests.keras import table_models as models

every_kind = pytest.mark.parametrize("kind", models.KINDS)
slow_kinds = [pytest.param(kind, marks=pytest.mark.slow) for kind in models.KINDS[1:]]
host_and_slow_kinds = pytest.mark.parametrize("kind", [models.KINDS[0], *slow_kinds])


def trained(kind, folder, optimizer, way=models.fit, **compiled):
    model = models.make_model(models.make_layer(kind, folder), optimizer(), **compiled)
    way(model)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["file", "sharded"])
def test_keras_leaves_out_xla_where_a_table_cannot_be_compiled(kind, tmp_path):
    with pytest.warns(UserWarning, match="doesn't support `jit_compile=True`"):
        model = trained(kind, tmp_path, LazyAdam, jit_compile=True)
    assert not model.jit_compile


@pytest.mark.slow
@host_and_slow_kinds
def test_one_table_behind_two_inputs(kind, tmp_path):
    def make(kind):
        layer = models.make_layer(kind, tmp_path)
        keras.utils.set_random_seed(0)
        left, right = (keras.Input((models.LENGTH,), dtype="int64") for _ in range(2))
        dot = keras.layers.Dot((1, 2))(
            [keras.layers.GlobalAveragePooling1D()(layer(left)), layer(right)]
        )
        model = keras.Model([left, right], keras.layers.Dense(1)(dot))
        model.compile(LazyAdam(0.1), loss="mse")
        model.fit(
            [models.IDS, models.IDS[::-1]], models.TARGETS, batch_size=8, shuffle=False, verbose=0
        )
        return model

    assert models.state(make(kind)) == models.state(make("device"))


@host_and_slow_kinds
@pytest.mark.parametrize("eager", [False, True])
def test_a_stock_optimizer_for_the_table_is_refused(kind, eager, tmp_path):
    layer = models.make_layer(kind, tmp_path)
    model = models.make_model(layer, keras.optimizers.Adam(), run_eagerly=eager)
    with pytest.raises(ValueError, match=r"embeddings is a table .* use one of"):
        models.fit(model)
    np.testing.assert_array_equal(layer.get_weights()[0], models.WEIGHTS)


@every_kind
def test_sizes_are_those_of_all_rows(kind, tmp_path):
    model = models.make_model(models.make_layer(kind, tmp_path))
    assert model.layers[0].count_params() == models.ROWS * models.COLUMNS


@pytest.mark.slow
@every_kind
def test_a_saved_model_goes_on_as_if_it_had_never_stopped(kind, tmp_path):
    model = trained(kind, tmp_path, LazyAdam)
    model.save(tmp_path / "model.keras")
    config = model.layers[0].get_config()
    before = models.state(model)
    models.fit(model)
    after = models.state(model)
    del model
    gc.collect()  # which unlocks the file
    loaded = keras.models.load_model(tmp_path / "model.keras")
    new = {"table_file": loaded.layers[0].table_file} if kind == "file" else {}
    assert loaded.layers[0].get_config() == config | new
    assert models.state(loaded) == before
    models.fit(loaded)
    assert models.state(loaded) == after


@pytest.mark.slow
@host_and_slow_kinds
@pytest.mark.parametrize("to_device", [True, False])
def test_weights_and_checkpoints_fit_every_kind(kind, to_device, tmp_path):
    kinds = (kind, "device") if to_device else ("device", kind)
    saved, other = (trained(k, tmp_path, LazyAdam) for k in kinds)
    models.fit(saved)
    tf.train.Checkpoint(saved).write(str(tmp_path / "checkpoint"))
    tf.train.Checkpoint(other).read(str(tmp_path / "checkpoint")).assert_consumed()
    assert models.state(other) == models.state(saved)
    models.fit(saved)
    saved.save_weights(tmp_path / "all.weights.h5")
    other.load_weights(tmp_path / "all.weights.h5")
    assert models.state(other) == models.state(saved)


@every_kind
def test_bad_arguments(kind, tmp_path):
    with (
        tf.distribute.MirroredStrategy(["CPU:0"]).scope(),
        pytest.raises(ValueError, match=f"table='{kind}' has one copy .* MirroredStrategy"),
    ):
        models.make_layer(kind, tmp_path)
    with pytest.raises(ValueError, match="lora_rank needs table='device'"):
        models.make_layer(kind, tmp_path, lora_rank=2)
    layer = models.make_layer(kind, tmp_path)
    with pytest.raises(ValueError, match=f"LoRA needs table='device', not '{kind}'"):
        layer.enable_lora(2)


def _operators(table, other):
    """Operators of a Keras variable on a table, and ways to its value."""
    for name in ("add", "matmul", "and"):
        yield name, lambda name=name: getattr(table, f"__{name}__")(other)
        yield f"r{name}", lambda name=name: getattr(table, f"__r{name}__")(tf.transpose(other))
    for name in ("eq", "lt"):
        yield name, lambda name=name: getattr(table, f"__{name}__")(other)
    yield "neg", lambda: tf.reduce_sum(-table)
    value = table.value
    yield from {
        "item": lambda: table[0],
        "assign_add": lambda: table.assign_add(other),
        "penalty": lambda: tf.reduce_sum(table**2),
        "value squared": lambda: value**2,
        "value.numpy": lambda: value.numpy(),
        "value.read_value": lambda: value.read_value(),
        "value without copy": lambda: value.read_value_no_copy(),
        "value.sparse_read": lambda: value.sparse_read([0]),
        "value.gather_nd": lambda: value.gather_nd([[0]]),
        "gather of value": lambda: tf.gather(value, [0]),
        "lookup": lambda: tf.nn.embedding_lookup(value, [0]),
        "regularizer": lambda: keras.regularizers.L2()(table),
        "ops.sum": lambda: keras.ops.sum(table),
        "ops.take": lambda: keras.ops.take(table, [0], axis=0),
        "convert": lambda: tf.convert_to_tensor(table),
        "traced": lambda: tf.function(lambda: tf.reduce_sum(value), autograph=False)(),
        "constant": lambda: tf.function(lambda: np.asarray(table) * 1.0, autograph=False)(),
    }.items()


@pytest.mark.parametrize("kind", [*models.KINDS, "dynamic"])
def test_arithmetic_on_a_table_is_refused_and_numpy_has_its_rows(kind, tmp_path):
    layer = models.make_layer(kind, tmp_path)
    if kind == "dynamic":
        models.fit_batches(models.make_model(layer))
    table, (*_, rows) = layer.embeddings, layer.get_weights()
    for each in layer.weights:  # the keys of a dynamic table are one more
        for name, operation in _operators(each, tf.ones(each.shape, each.dtype)):
            with pytest.raises(ValueError, match="is a table that no step reads as a whole: look"):
                pytest.fail(f"{name} of {each.path} is {operation()}")
    assert np.abs(rows).max() > 0
    for found in (np.asarray(table), table.numpy(), np.abs(table) * np.sign(rows)):
        np.testing.assert_array_equal(found, rows)
    assert "value" not in repr(table)


@pytest.mark.parametrize("kind", ["device", "reduce", *models.KINDS, "dynamic"])
def test_a_vectorized_map_looks_up_and_does_not_train_in_silence(kind, tmp_path):
    if kind == "reduce":
        layer = RowEmbeddingReduce(models.ROWS, models.COLUMNS)
    else:
        layer = models.make_layer(kind, tmp_path)
    ids = tf.constant(models.IDS[:5])
    expected = tf.stack([layer(each) for each in ids])
    with tf.GradientTape() as tape:
        found = tf.vectorized_map(layer, ids)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    if kind in ("device", "reduce"):
        with pytest.raises(tf.errors.InvalidArgumentError):
            tf.vectorized_map(layer, ids + models.ROWS)
        return
    table = layer.trainable_variables
    with pytest.raises(ValueError, match="is dense, as after a look-up in tf.vectorized_map; look"):
        SGD(0.1).apply(tape.gradient(found, table), table)


@pytest.mark.parametrize(
    "kind",
    ["dynamic", *(pytest.param(kind, marks=pytest.mark.slow) for kind in [*models.KINDS, "hot"])],
)
def test_tensorboard_has_a_histogram_of_rows(kind, tmp_path, monkeypatch, far_host):
    monkeypatch.setattr(table_variable, "_SAMPLE", models.ROWS // 5)
    layer = models.make_layer(kind, tmp_path, name="words")
    model = models.make_model(layer)
    board = keras.callbacks.TensorBoard(tmp_path / "log", histogram_freq=1, write_images=True)
    model.fit(models.IDS, models.TARGETS, epochs=2, verbose=0, callbacks=[board])
    (file,) = (tmp_path / "log" / "train").glob("events*")
    tensors = {
        (event.step, value.tag): tf.make_ndarray(value.tensor)
        for event in tf.compat.v1.train.summary_iterator(str(file))
        for value in event.summary.value
    }
    rows = layer.get_weights()[-1]
    sample = rows[np.linspace(0, len(rows) - 1, models.ROWS // 5).astype(int)]
    buckets = tensors[1, f"{layer.embeddings.path}/histogram"]
    assert buckets[:, 2].sum() == sample.size
    assert (buckets[0, 0], buckets[-1, 1]) == pytest.approx((sample.min(), sample.max()))


@pytest.mark.slow
@host_and_slow_kinds
def test_no_warning_of_a_large_table(kind, tmp_path):
    options = {"table_file": str(tmp_path / "rows.bin")} if kind == "file" else {}
    layer = models.RowEmbedding(70_000, 64, table=kind, **options)  # 18 MB
    models.fit(models.make_model(layer))


def test_bad_kinds():
    layer = models.RowEmbedding
    with pytest.raises(ValueError, match="table='disk'; give one of device, host, file, sharded"):
        layer(5, 2, table="disk")
    with pytest.raises(ValueError, match="table='disk'; give one of"):
        layer(5, 2, table="disk", weights=[np.zeros((5, 2))])
    with pytest.raises(ValueError, match="table='host' and table_file='x'; name a file with"):
        layer(5, 2, table="host", table_file="x")
    with pytest.raises(ValueError, match="table_file=''; give the name of a file"):
        layer(5, 2, table="file", table_file="")
    with pytest.raises(ValueError, match="table='file' and table_file=None"):
        layer(5, 2, table="file")
    with pytest.raises(ValueError, match="GlorotUniform makes whole tables"):
        layer(5, 2, "glorot_uniform", table="file", table_file="x")
