"""`RowEmbedding` with its table on the host, in a file or in shards trains as on the device."""

import gc
import json
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.keras import (
    SGD,
    DynamicEmbedding,
    FeatureConfig,
    FeatureEmbedding,
    LazyAdam,
    RowEmbedding,
    RowEmbeddingReduce,
    TableConfig,
    prefetch_rows,
)
from app.keras.tables import table_variable
from tests.keras import softmax_models
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
        tf.distribute.experimental.CentralStorageStrategy(["CPU:0"]).scope(),
        pytest.raises(ValueError, match=f"table='{kind}' has its rows in each .* CentralStorage"),
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


@pytest.mark.parametrize("kind", ["device", "host", "dynamic", "shared"])
def test_a_look_up_in_a_branch_trains_where_it_is_taken(kind, tmp_path):
    if kind == "shared":
        config = [TableConfig(name, 9, 2, combiner=None) for name in ("a", "b")]
        features = FeatureEmbedding([FeatureConfig("x", each, (None,)) for each in config])
        features.build()
        layer = features.tables["a"]
    else:
        layer = models.make_layer(kind, tmp_path)
        layer.build()
    (table,), optimizer = layer.trainable_variables, SGD(0.1)
    optimizer.build([table])

    @tf.function(autograph=False)
    def step(is_taken):
        with tf.GradientTape() as tape:
            ids = tf.constant([1, 2, 2], tf.int64)
            rows = tf.cond(is_taken, lambda: layer(ids), lambda: tf.zeros([3, layer.output_dim]))
            loss = tf.reduce_sum(rows)
        optimizer.apply(tape.gradient(loss, [table]), [table])

    ids = tf.constant([1, 2], tf.int64)
    for is_taken, moved in (True, [0.1, 0.2]), (False, [0.0, 0.0]):
        before = layer(ids)
        step(tf.constant(is_taken))
        np.testing.assert_allclose(tf.reduce_mean(before - layer(ids), axis=1), moved, atol=1e-6)


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
        SGD(0.1).apply(gradient := tape.gradient(found, table), table)
    with pytest.raises(ValueError, match="which this optimizer does not know; use one of lexrow"):
        keras.optimizers.Adam().apply(gradient, table)


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


# A table that XLA cannot reach is refused in words that name the layer and the remedy.


ROOT = pathlib.Path(__file__).parents[2]
# Prints the error for each place of the table and of the step, with two CPUs.
PROGRAM = """
import json, pathlib, tempfile, tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, 2 * [tf.config.LogicalDeviceConfiguration()])
from tests.keras import softmax_models, table_models as models
errors = {}
hidden = tf.zeros([2, softmax_models.DIM])
for kind in ("device", "host", *softmax_models.LAYERS):
    for table, step in (("CPU:1", "CPU:0"), ("CPU:0", "CPU:1"), ("CPU:1", "CPU:1")):
        with tf.device(table):
            if kind in softmax_models.LAYERS:
                layer, inputs = softmax_models.built(kind), [hidden]
                layer.name = "words"
            else:
                layer, inputs = models.make_layer(kind, None, name="words"), []
        function = tf.function(layer.call, jit_compile=True, autograph=False)
        with tf.device(step):
            try:
                function(*inputs, tf.constant([1, 2]))
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
        **{
            f"{kind} {table} {step}": words.format(table, step, step)
            for kind in ("device", *softmax_models.LAYERS)
            for table, step in (("CPU:1", "CPU:0"), ("CPU:0", "CPU:1"))
        },
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


# Arguments and input that cannot be are refused by the name of the layer; empty input is fine.


ALL_KINDS = ("device", *models.KINDS)
with_device = pytest.mark.parametrize("kind", ALL_KINDS)
STRINGS = r"words: the ids are string, .*StringLookup .*keras\.DynamicEmbedding\(6, 'string'\)"


@with_device
def test_ids_that_are_strings(kind, tmp_path):
    layer = models.make_layer(kind, tmp_path, name="words")
    for ids in (tf.constant(["a"]), np.array(["a"]), keras.Input((3,), dtype="string")):
        with pytest.raises(ValueError, match=STRINGS):
            layer(ids)
    with pytest.raises(ValueError, match="words: the ids are complex128, where the layer takes"):
        layer(tf.constant([1j]))


def test_strings_to_combine():
    layer = RowEmbeddingReduce(5, 6, name="words")
    for ids in (tf.constant([["a"]]), keras.Input((3,), dtype="string")):
        with pytest.raises(ValueError, match=STRINGS):
            layer(ids)


@pytest.mark.parametrize("own", ["int64", "string"])
def test_keys_of_another_dtype(own):
    layer = DynamicEmbedding(3, own, name="users")
    for other in {"int64", "string", "float32"} - {own}:
        keys = tf.constant(["1"]) if other == "string" else tf.constant([1], other)
        for given in (keys, keras.Input((), dtype=other)):
            match = f"users: the keys are {other}, where the layer has {own} keys; give these"
            with pytest.raises(ValueError, match=match):
                layer(given)
    with pytest.raises(ValueError, match="users: the keys are a sparse tensor; give ragged keys"):
        layer(tf.sparse.from_dense(["a"] if own == "string" else [1]))


def test_keys_whose_dtype_keras_guesses():
    model = keras.Sequential([DynamicEmbedding(3, "int64", name="users")])
    with pytest.raises(ValueError, match=r"users: .* needs keras.Input\(..., dtype='int64'\)"):
        model.build((None, 2))


@pytest.mark.parametrize("value", [0, -3, 2.5, "7", True, None])
def test_sizes_that_are_no_positive_integers(value):
    names = (
        ("output_dim", "min_count") if value is None else ("output_dim", "capacity", "min_count")
    )
    for name in names:
        with pytest.raises(
            ValueError, match=rf"^users: {name}={value!r}; give an integer from 1 to"
        ):
            DynamicEmbedding(**{"output_dim": 3, "name": "users"} | {name: value})
    if value is not None:
        with pytest.raises(ValueError, match=rf"^words: hot_rows={value!r}; give a number of rows"):
            RowEmbedding(5, 3, table="host", hot_rows=value, name="words")


def test_other_arguments_of_a_table_of_keys():
    with pytest.raises(ValueError, match="users: max_age=-1; give an integer from 0 to"):
        DynamicEmbedding(3, max_age=-1, name="users")
    with pytest.raises(ValueError, match="users: min_count=256; give an integer from 1 to 255"):
        DynamicEmbedding(3, min_count=256, name="users")
    for initializer in (
        "glorot_uniform",
        keras.initializers.Constant(np.ones(3)),
        keras.initializers.RandomUniform(seed=keras.random.SeedGenerator(1)),
    ):
        with pytest.raises(
            ValueError, match=r"^users: embeddings_initializer=.* makes whole tables"
        ):
            DynamicEmbedding(3, embeddings_initializer=initializer, name="users")


@pytest.mark.slow
def test_a_cache_with_room_for_more_rows_than_there_are(tmp_path):
    ours, device = (
        models.make_model(models.make_layer(kind, tmp_path, **options))
        for kind, options in (("host", {"hot_rows": 10 * models.ROWS}), ("device", {}))
    )
    models.fit(ours, prefetch_rows(models.data(), ours))
    models.fit(device)
    assert models.state(ours) == models.state(device)


@pytest.mark.slow
@with_device
@pytest.mark.parametrize("compiled", [{}, {"run_eagerly": True}, {"jit_compile": True}])
def test_an_empty_batch_trains_nothing(kind, compiled, tmp_path):
    if kind not in ("device", "host") and "jit_compile" in compiled:
        pytest.skip("Keras does not compile it")
    check_empty(models.make_model(models.make_layer(kind, tmp_path), **compiled), np.int64)


@pytest.mark.slow
@pytest.mark.parametrize("key_dtype", ["int64", "string"])
def test_an_empty_batch_of_keys_trains_nothing(key_dtype):
    layer = DynamicEmbedding(models.COLUMNS, key_dtype, capacity=5)
    check_empty(models.make_model(layer, dtype=key_dtype), object)


def check_empty(model, dtype):
    before = model.get_weights()
    empty = np.zeros((0, models.LENGTH), dtype)
    if dtype is object:
        empty = tf.zeros(empty.shape, model.layers[0].key_dtype)
    model.train_on_batch(empty, models.TARGETS[:0])
    assert model.predict_on_batch(empty).shape == (0, 1)
    for one, other in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_an_empty_batch_is_prefetched(tmp_path):
    model = models.make_model(models.make_layer("host", tmp_path, hot_rows=9))
    empty = tf.data.Dataset.from_tensors((models.IDS[:0], models.TARGETS[:0]))
    for batch in prefetch_rows(empty, model):
        model.train_on_batch(*batch)
    assert list(prefetch_rows(models.data().take(0), model)) == []
    np.testing.assert_array_equal(model.layers[0].get_weights()[0], models.WEIGHTS)


@with_device
def test_ragged_rows_without_ids(kind, tmp_path):
    layer = models.make_layer(kind, tmp_path)
    rows = layer(tf.ragged.constant([[1], [], [2, 3]], dtype=tf.int64))
    np.testing.assert_array_equal(rows.values, models.WEIGHTS[[1, 2, 3]])
    assert rows.row_lengths().numpy().tolist() == [1, 0, 2]
    nothing = tf.RaggedTensor.from_row_lengths(tf.zeros([0], tf.int64), [0, 0])
    assert layer(nothing).shape == (2, None, models.COLUMNS)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_nothing_combines_to_zeros(combiner):
    layer = RowEmbeddingReduce(9, 3, combiner=combiner)
    for ids, count in (
        (tf.zeros((0, 4), tf.int64), 0),
        (tf.zeros((2, 0), tf.int64), 2),
        (tf.ragged.constant([[], []], dtype=tf.int64), 2),
        (tf.sparse.from_dense(tf.zeros((2, 3), tf.int64)), 2),
    ):
        np.testing.assert_array_equal(layer(ids), np.zeros((count, 3)))


IDS = tf.constant([[1, 2], [3, 4]])
RAGGED, SPARSE = tf.ragged.constant([[1], [2, 3]]), tf.sparse.from_dense([[1, 0], [2, 3]])


@pytest.mark.parametrize(
    ("ids", "weights", "words"),
    [
        (IDS, tf.ones((2, 3)), r"have shape \(2, 3\), the ids have shape \(2, 2\); give each id"),
        (IDS, tf.ones(4), r"have shape \(4,\), the ids"),
        (IDS, tf.ragged.constant([[1.0], [2.0]]), "are a ragged tensor, the ids are a dense one"),
        (SPARSE, tf.ones((2, 2)), "are a dense tensor, the ids are a sparse one"),
        (IDS, tf.constant([["a", "b"]]), "are strings; give numbers"),
        (RAGGED, tf.ragged.constant([[1.0, 2.0], [3.0]]), "are not at the places of the ids; give"),
        (RAGGED, tf.ragged.constant([[1.0], [2.0, 3.0, 4.0]]), "are not at the places of the ids"),
        (SPARSE, tf.sparse.from_dense([[1.0, 2.0], [0.0, 3.0]]), "are not at the places"),
        (SPARSE, tf.sparse.from_dense([[1.0, 2.0], [4.0, 3.0]]), "are not at the places"),
    ],
)
def test_weights_that_are_not_those_of_the_ids(ids, weights, words):
    layer = RowEmbeddingReduce(9, 3, name="bag")
    error = tf.errors.InvalidArgumentError if "places" in words else ValueError
    with pytest.raises(error, match=f"bag: the weights {words}"):
        layer(ids, weights)


def test_weights_of_another_length_in_a_graph():
    layer = RowEmbeddingReduce(9, 3, name="bag")
    unknown = tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None, None])
    call = tf.function(lambda *args: layer(*args), autograph=False, input_signature=unknown)
    np.testing.assert_array_equal(call(IDS, tf.ones((2, 2))), layer(IDS))
    for shape in ((2, 3), (4, 1)):
        with pytest.raises(tf.errors.InvalidArgumentError, match="bag: the weights are not at"):
            call(IDS, tf.ones(shape))


@pytest.mark.parametrize(
    "ids", [tf.ragged.constant([[[1], [2]]]), tf.sparse.from_dense([[[1]]]), tf.constant(3)]
)
def test_ids_with_too_many_or_too_few_axes(ids):
    with pytest.raises(
        ValueError, match=r"bag: the ids are a \w+ tensor of shape .*; the last axis"
    ):
        RowEmbeddingReduce(9, 3, name="bag")(ids)
