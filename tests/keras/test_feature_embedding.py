"""`FeatureEmbedding` has the tables of many features, and answers as layers made one by one."""

import gc
import re
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.keras import (
    SGD,
    FeatureConfig,
    FeatureEmbedding,
    LazyAdam,
    RowEmbedding,
    RowEmbeddingReduce,
    TableConfig,
    prefetch_rows,
)

BATCH, LENGTH, WORDS, USERS, COLUMNS = 6, 4, 40, 30, 5
RANDOM = np.random.default_rng(1)
DATA = {
    "user": RANDOM.integers(0, USERS // 2, BATCH),  # some rows repeat, and some are idle
    "texts": [RANDOM.integers(0, WORDS // 2, (BATCH, LENGTH)) for _ in range(2)],
}
WEIGHTS = {"user": None, "texts": [RANDOM.random((BATCH, LENGTH)).astype(np.float32), None]}
TARGETS = RANDOM.normal(size=(BATCH, 1)).astype(np.float32)


def configs(folder=None, users=None, **words):
    """Features in a nest: one id of a user, and two texts that share a table."""
    initializer = keras.initializers.RandomUniform(-0.1, 0.1, seed=3)
    words = {"initializer": initializer, "combiner": "sum"} | words
    if words.get("table") == "file":
        words["table_file"] = str(folder / "words.bin")
    words = TableConfig("words", WORDS, COLUMNS, **words)
    users = TableConfig("users", USERS, 3, initializer=initializer, **(users or {}))
    texts = [FeatureConfig(name, words, (None, LENGTH)) for name in ("title", "query")]
    return {"user": FeatureConfig("user", users, (BATCH,), (BATCH, 3)), "texts": texts}


def make_model(features, weighted=False, **compiled):
    keras.utils.set_random_seed(0)
    inputs = keras.tree.map_structure(lambda ids: keras.Input(ids.shape[1:], dtype="int64"), DATA)
    weights = [keras.Input((LENGTH,))] if weighted else []
    nested = {"user": None, "texts": [*weights, None]} if weighted else None
    vectors = FeatureEmbedding(features, name="features")(inputs, weights=nested)
    joined = keras.layers.Concatenate()([vectors["user"], *vectors["texts"]])
    outputs = keras.layers.Dense(1)(joined)
    model = keras.Model([*keras.tree.flatten(inputs), *weights], outputs)
    model.compile(LazyAdam(0.1), "mse", **compiled)
    return model


def fit(model, weighted=False):
    x = [*keras.tree.flatten(DATA), *([WEIGHTS["texts"][0]] if weighted else [])]
    return model.fit(x, TARGETS, epochs=3, verbose=0).history["loss"]


def state(model):
    return [v.numpy().tobytes() for v in (*model.variables, *model.optimizer.variables)]


def test_vectors_are_those_of_layers_made_one_by_one():
    layer = FeatureEmbedding(configs())
    vectors = layer(DATA, weights=WEIGHTS)
    assert list(layer.tables) == ["words", "users"] or list(layer.tables) == ["users", "words"]
    assert len(layer.trainable_variables) == 2
    words, users = (layer.tables[name].get_weights()[0] for name in ("words", "users"))
    np.testing.assert_array_equal(vectors["user"], users[DATA["user"]])
    first, second = (words[ids] for ids in DATA["texts"])
    weighted = (first * WEIGHTS["texts"][0][..., np.newaxis]).sum(1)
    np.testing.assert_allclose(vectors["texts"][0], weighted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(vectors["texts"][1], second.sum(1), rtol=1e-5, atol=1e-6)
    assert type(layer.tables["words"]) is RowEmbeddingReduce


def test_a_table_without_a_combiner_gives_a_vector_for_each_id():
    words = TableConfig("words", WORDS, COLUMNS, combiner=None, mask_zero=True)
    layer = FeatureEmbedding(FeatureConfig("text", words, (None, LENGTH), (BATCH, LENGTH, COLUMNS)))
    assert type(layer.tables["words"]) is RowEmbedding
    ids = keras.Input((LENGTH,), dtype="int32")
    assert layer(ids).shape == (None, LENGTH, COLUMNS)
    assert layer.compute_output_shape((None, LENGTH)) == (None, LENGTH, COLUMNS)
    np.testing.assert_array_equal(layer(DATA["texts"][0]), layer.tables["words"](DATA["texts"][0]))
    with pytest.raises(ValueError, match="'text' has weights, and table 'words' has no combiner"):
        layer(DATA["texts"][0], WEIGHTS["texts"][0])


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["file", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("host", "sharded"))]
)
def test_kinds_of_tables_train_alike_and_are_saved(kind, tmp_path):
    model, device = make_model(configs(tmp_path, table=kind)), make_model(configs())
    model.set_weights(device.get_weights())  # a file has other draws of initial rows
    assert fit(model) == fit(device)
    model.save(tmp_path / "model.keras")
    before = state(model)
    del model
    gc.collect()  # its file belongs to one layer at a time
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert state(loaded) == before
    layer = loaded.get_layer("features")
    assert layer.tables["words"].table == kind and layer.tables["users"].table == "device"
    assert fit(loaded) == fit(device)


def test_the_configuration_has_each_table_once():
    layer = FeatureEmbedding(configs(users={"dtype": "bfloat16", "combiner": "mean"}), name="all")
    config = layer.get_config()
    assert len(config["tables"]) == 2
    again = FeatureEmbedding.from_config(config)
    assert again.get_config() == config and list(again.tables) == list(layer.tables)
    assert again.tables["users"].variable_dtype == "bfloat16"
    assert again(DATA)["texts"][1].shape == (BATCH, COLUMNS)


@pytest.mark.slow
def test_a_table_with_an_optimizer_of_its_own():
    """As the refusal of `TableConfig.optimizer` says."""
    model = make_model(configs(table="host"))
    other = {".*/words/embeddings": SGD(1e-4)}
    optimizers = keras.optimizers.OptimizerMap(LazyAdam(0.1), other)
    model.compile(keras.optimizers.MultiOptimizer(optimizers), "mse")
    tables = model.get_layer("features").tables
    before = {name: table.get_weights()[0] for name, table in tables.items()}
    fit(model)
    change = {n: np.abs(t.get_weights()[0] - before[n]).max() for n, t in tables.items()}
    assert 0 < change["words"] < 1e-3 and change["users"] > 0.1


@pytest.mark.slow
def test_cached_rows_are_prefetched():
    model, device = make_model(configs(table="host", hot_rows=38)), make_model(configs())
    x = tuple(keras.tree.flatten(DATA))
    data = tf.data.Dataset.from_tensors((x, TARGETS)).repeat(3)
    model.fit(prefetch_rows(data, model), shuffle=False, verbose=0)
    device.fit(data, shuffle=False, verbose=0)
    for ours, theirs in zip(model.get_weights(), device.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_ragged_and_sparse_ids():
    layer = FeatureEmbedding(
        [FeatureConfig("text", TableConfig("words", WORDS, COLUMNS), (None, LENGTH))]
    )
    ragged = tf.ragged.constant([[3, 3, 5], [], [9]], dtype=tf.int64)
    (vectors,) = layer([ragged])
    assert vectors.shape == (3, COLUMNS)
    np.testing.assert_array_equal(layer([ragged.to_sparse()])[0], vectors)
    np.testing.assert_array_equal(vectors[1], np.zeros(COLUMNS))
    symbolic = layer([keras.Input((None,), dtype="int64", ragged=True)])
    assert symbolic[0].shape == (None, COLUMNS)


def keras_rs_table(**changed):
    """A table of keras_rs, by the fields of its class."""
    fields = {
        "name": "words",
        "vocabulary_size": WORDS,
        "embedding_dim": COLUMNS,
        "initializer": "uniform",
        "optimizer": "adam",
        "combiner": "mean",
        "placement": "auto",
        "max_ids_per_partition": 256,
        "max_unique_ids_per_partition": 256,
    }
    return types.SimpleNamespace(**fields | changed)


def keras_rs_feature(table, name="text", output_shape=(BATCH, COLUMNS)):
    shapes = {"input_shape": (BATCH, LENGTH), "output_shape": output_shape}
    return types.SimpleNamespace(name=name, table=table, **shapes)


def test_configurations_of_keras_rs():
    table = keras_rs_table()
    layer = FeatureEmbedding({n: keras_rs_feature(table, n) for n in ("a", "b")})
    assert list(layer.tables) == ["words"] and layer.tables["words"].combiner == "mean"
    again = FeatureEmbedding.from_config(layer.get_config())
    vectors = again(dict(zip("ab", DATA["texts"], strict=True)))
    rows = again.tables["words"].get_weights()[0]
    np.testing.assert_allclose(vectors["b"], rows[DATA["texts"][1]].mean(1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"placement": "sparsecore"}, "table 'words': placement='sparsecore'; give 'auto', and"),
        ({"optimizer": "ftrl"}, r"table 'words': optimizer='ftrl'; .*OptimizerMap\(default, "),
        ({"optimizer": keras.optimizers.SGD()}, "table 'words': optimizer=<keras"),
        ({"combiner": "max"}, "words: combiner='max'; give one of"),
        ({"table": "disk"}, "words: table='disk'; give one of"),
        ({"table": "host", "hot_rows": 0}, "words: hot_rows=0; give a number of rows"),
        ({"vocabulary_size": 0}, "input_dim"),
    ],
)
def test_a_table_that_cannot_be_honoured(changed, message):
    with pytest.raises(ValueError, match=message):
        FeatureEmbedding({"text": keras_rs_feature(keras_rs_table(**changed))})


def test_bad_features():
    text, other = (keras_rs_feature(keras_rs_table()) for _ in range(2))
    with pytest.raises(ValueError, match="two tables are named 'words'; give features that share"):
        FeatureEmbedding([text, other])
    with pytest.raises(ValueError, match=r"feature_configs=\{\} has no feature"):
        FeatureEmbedding({})
    with pytest.raises(ValueError, match="'words' is no FeatureConfig with a TableConfig"):
        FeatureEmbedding(["words"])
    with pytest.raises(ValueError, match="no FeatureConfig .* and a shape .*'int' object is not"):
        FeatureEmbedding(FeatureConfig("text", TableConfig("words", 5, 2), 8))
    with pytest.raises(ValueError, match=r"input_shape=\(\) lacks the batch"):
        FeatureEmbedding(FeatureConfig("text", TableConfig("words", 5, 2), ()))


def test_bad_inputs():
    layer = FeatureEmbedding(configs(), name="features")
    with pytest.raises(ValueError, match=r"features: the ids do not have the structure .*'title'"):
        layer({"user": DATA["user"]})
    with pytest.raises(ValueError, match="features: the weights do not have the structure"):
        layer(DATA, weights=WEIGHTS["texts"])
    with pytest.raises(ValueError, match=r"'user' have shape \(6, 4\), and its input_shape is"):
        layer({"user": DATA["texts"][0], "texts": DATA["texts"]})


def many_features(**compiled):
    """A model with tables of two widths, trained on ids that repeat."""
    keras.utils.set_random_seed(0)
    initializer = keras.initializers.RandomUniform(-0.1, 0.1, seed=3)
    sizes = {f"f{n}": (30 + n, 4 if n < 3 else 2) for n in range(5)}
    features = {
        name: FeatureConfig(
            name, TableConfig(name, *shape, initializer=initializer, combiner=None), (None,)
        )
        for name, shape in sizes.items()
    }
    inputs = {name: keras.Input((), dtype="int32", name=name) for name in sizes}
    vectors = FeatureEmbedding(features)(inputs)
    scores = keras.layers.Dense(1)(keras.layers.Concatenate()(list(vectors.values())))
    model = keras.Model(inputs, scores)
    model.compile(LazyAdam(0.1, global_clipnorm=0.5), "mse", **compiled)
    return model, {name: np.arange(32) % 17 + n for n, name in enumerate(sizes)}


def test_xla_updates_the_tables_of_one_width_together():
    found = {}
    for jit in (False, True):
        model, ids = many_features(jit_compile=jit, run_eagerly=not jit)
        model.fit(ids, np.arange(32.0) % 3, batch_size=16, epochs=2, shuffle=False, verbose=0)
        found[jit] = [*model.get_weights(), *(v.numpy() for v in model.optimizer.variables)]
    for ours, expected in zip(found[True], found[False], strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)
    step = tf.function(model.train_step, autograph=False, jit_compile=True)
    batch = {name: tf.constant(own, tf.int32) for name, own in ids.items()}, tf.zeros([32, 1])
    program = step.experimental_get_compiler_ir(batch)
    lowered, optimized = program(stage="hlo"), program(stage="optimized_hlo")
    # Numbers of rows, a sum for each width; rows and both moments of each table.
    assert lowered.count(" scatter(") == 1 + 2 + 3 * 5 and " sort(" not in lowered
    for table in model.trainable_variables[:5]:
        assert not re.findall(rf"f32\[{table.shape[0]},.*? (?:copy|transpose)\(", optimized)
