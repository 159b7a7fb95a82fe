"""`to_keras` gives a model of Keras alone, with the same answers."""

import gc
import subprocess
import sys
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.keras import (
    DynamicEmbedding,
    FeatureConfig,
    FeatureEmbedding,
    LazyAdam,
    RowEmbedding,
    RowEmbeddingReduce,
    StoredRows,
    TableConfig,
    to_keras,
)
from tests.keras import table_models as models


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "options"),
    [*((kind, {}) for kind in ["device", *models.KINDS]), ("host", {"hot_rows": 4})],
)
def test_the_copy_has_stock_layers_and_the_same_answers(kind, options, tmp_path):
    model = models.make_model(models.make_layer(kind, tmp_path, **options))
    copy = to_keras(model)
    assert type(copy.layers[0]) is keras.layers.Embedding
    assert copy.layers[0].name == model.layers[0].name
    np.testing.assert_array_equal(copy(models.IDS), model(models.IDS))
    copy.layers[0].set_weights([0 * models.WEIGHTS])
    np.testing.assert_array_equal(model.layers[0].get_weights()[0], models.WEIGHTS)
    copy.compile("adam", "mse")
    models.fit(copy)


def test_what_cannot_be_replaced(tmp_path):
    class Own(keras.Model):
        pass

    with pytest.raises(ValueError, match="is a Own, whose layers cannot be replaced"):
        to_keras(Own())
    model = models.make_model(DynamicEmbedding(models.COLUMNS, capacity=5))
    with pytest.raises(ValueError, match="Keras has no layer like DynamicEmbedding; model.export"):
        to_keras(model)
    ids = keras.Input((2,), dtype="int64")
    feature = FeatureConfig("a", TableConfig("t", 5, 2, combiner="sum"), (None, 2))
    model = keras.Model(ids, FeatureEmbedding(feature, name="all")(ids))
    with pytest.raises(ValueError, match="all: Keras has no layer like FeatureEmbedding"):
        to_keras(keras.Sequential([model]))
    words = RowEmbeddingReduce(5, 2, name="words")
    model = keras.Model(ids, [words(ids), words(ids, keras.ops.ones_like(ids, "float32"))])
    with pytest.raises(ValueError, match="words has weights or a mask, for which Keras has no"):
        to_keras(model)
    masked = keras.layers.Masking()(keras.layers.Reshape((2, 1))(ids))
    model = keras.Model(ids, RowEmbeddingReduce(5, 2, name="words")(masked))
    with pytest.raises(ValueError, match="words has ids with a mask of the layer before"):
        to_keras(model)
    ragged = keras.Input((None,), dtype="int64", ragged=True)
    with pytest.raises(ValueError, match="words has ragged ids, for which Keras has no layers"):
        to_keras(keras.Model(ragged, RowEmbeddingReduce(5, 2, name="words")(ragged)))


ROWS, COLUMNS, LENGTH = 9, 3, 4
GIVEN = np.random.default_rng(0).integers(0, ROWS, (5, 2, LENGTH))
GIVEN[0] = 0


def rows(**options):
    return RowEmbedding(ROWS, COLUMNS, embeddings_initializer="normal", **options)


def reduced(**options):
    return RowEmbeddingReduce(ROWS, COLUMNS, embeddings_initializer="normal", **options)


def nested(layer, copied=True):
    """A model with a layer in a wrapper, in a Sequential in it, and in models in models."""
    ids = keras.Input(GIVEN.shape[1:], dtype="int64")
    inner = keras.Sequential([layer, keras.layers.Dense(2)])
    one = keras.Input((LENGTH,), dtype="int64")
    again = keras.layers.deserialize(keras.layers.serialize(layer)) if copied else layer
    other = keras.Model(one, keras.Sequential([again, keras.layers.Flatten()])(one))
    deep = reduced if isinstance(layer, RowEmbeddingReduce) else rows
    wrapped = keras.layers.TimeDistributed(deep(name="deep"))
    return keras.Model(
        ids, [wrapped(ids), keras.layers.TimeDistributed(inner)(ids), other(ids[:, 0])]
    )


@keras.saving.register_keras_serializable("tests")
class Cell(keras.layers.SimpleRNNCell):
    """A cell around a layer."""

    def __init__(self, units, layer, **options):
        super().__init__(units, **options)
        self.layer = keras.saving.deserialize_keras_object(layer)

    def build(self, shape):
        self.layer.build(shape)
        super().build((*shape[:-1], self.layer.output_dim))

    def call(self, inputs, states, training=False):
        return super().call(self.layer(inputs[..., 0]), states, training)

    def get_config(self):
        layer = keras.saving.serialize_keras_object(self.layer)
        return super().get_config() | {"layer": layer}


def bidirectional():
    layer = keras.saving.serialize_keras_object(rows())
    cell = keras.layers.RNN(Cell(2, layer), return_sequences=True)
    model = keras.Sequential(
        [
            keras.Input((LENGTH,), dtype="int64"),
            keras.layers.Reshape((LENGTH, 1)),
            keras.layers.Bidirectional(cell),
        ]
    )
    return model


def combined(combiner, **options):
    """A model with sums of the last of two axes, of one, and of ids that are one for each text."""
    ids = keras.Input(GIVEN.shape[1:], dtype="int64", name="ids")
    layers = [reduced(combiner=combiner, name=f"words{i}", **options) for i in range(3)]
    return keras.Model(ids, [layers[0](ids), layers[1](inputs=ids[:, 0]), layers[2](ids[:, 0, 0])])


MODELS = {
    "rows": lambda: nested(rows(name="words")),
    "sums": lambda: nested(reduced(name="words", mask_zero=True)),
    **{
        combiner: lambda combiner=combiner: combined(combiner)
        for combiner in ("sum", "mean", "sqrtn")
    },
    "masked": lambda: combined("mean", mask_zero=True),
    "masked roots": lambda: combined("sqrtn", mask_zero=True),
    "half": lambda: combined("sum", dtype="mixed_bfloat16"),
    "stored": lambda: nested(RowEmbedding(ROWS, COLUMNS, StoredRows(np.eye(ROWS, COLUMNS)))),
}

OPENS = """
import sys
sys.modules["app"] = sys.modules["lexrow"] = None  # an import fails
import glob, keras, numpy
for name in sorted(glob.glob("*.keras")):
    given = numpy.load(f"{name}.npz")
    model = keras.saving.load_model(name)
    for i, found in enumerate(model(given["x"])):
        numpy.testing.assert_allclose(found, given[f"y{i}"], atol=1e-2 if "half" in name else 1e-6)
    print(name)
"""


@pytest.mark.slow
def test_the_file_opens_without_this_package_and_predicts_as_the_model(tmp_path):
    for name, make in MODELS.items():
        model = make()
        copy = to_keras(model)
        assert copy.count_params() == model.count_params()
        arrays = {f"y{i}": np.asarray(y, np.float32) for i, y in enumerate(model(GIVEN))}
        copy.save(tmp_path / f"{name}.keras")
        np.savez(tmp_path / f"{name}.keras.npz", x=GIVEN, **arrays)
    ended = subprocess.run(
        [sys.executable, "-c", OPENS], cwd=tmp_path, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == sorted(f"{name}.keras" for name in MODELS)


def test_layers_of_the_user_are_kept_around_those_that_are_replaced():
    model = bidirectional()
    copy = to_keras(model)
    kinds = [type(layer) for layer in copy._flatten_layers()]
    assert kinds.count(Cell) == kinds.count(keras.layers.Embedding) == 2
    assert RowEmbedding not in kinds
    np.testing.assert_array_equal(copy(GIVEN[:, 0]), model(GIVEN[:, 0]))

    model = nested(rows(), copied=False)  # which Keras itself cannot load from a file
    copy = to_keras(model)
    assert len(copy.weights) == len(model.weights) == 4
    for found, expected in zip(copy(GIVEN), model(GIVEN), strict=True):
        np.testing.assert_array_equal(found, expected)

    class Own(RowEmbedding):
        pass

    model = keras.Sequential([keras.Input((2,), dtype="int64"), Own(ROWS, COLUMNS, name="mine")])
    with pytest.raises(ValueError, match="mine: Keras has no layer like RowEmbedding"):
        to_keras(model)


# A SavedModel of a model with a table of any kind answers where this package is not installed.


ANSWER = """
import sys, numpy as np, tensorflow as tf
inputs = tf.constant(np.load("inputs.npy"))
model = tf.saved_model.load("exported")
np.save("answers.npy", model.serve(inputs).numpy())
assert not any(name.split(".")[0] in ("app", "lexrow") for name in sys.modules)
"""


@pytest.mark.slow  # a process for each kind
@pytest.mark.parametrize("kind", [*models.KINDS, "int64", "string"])
def test_a_process_without_this_package_answers_as_the_model(kind, tmp_path):
    layer = (
        models.make_layer(kind, tmp_path)
        if kind in models.KINDS
        else DynamicEmbedding(models.COLUMNS, kind, capacity=40)
    )
    dtype = "string" if kind == "string" else "int64"
    model = models.make_model(layer, dtype=dtype)
    ids = models.strings() if kind == "string" else models.IDS
    models.fit(model, models.data(ids))
    inputs = ids[:3].astype("S" if kind == "string" else np.int64)
    if kind in ("int64", "string"):
        inputs[0, 0] = 1000  # a key without a row
    model.export(tmp_path / "exported", verbose=False)
    np.save(tmp_path / "inputs.npy", inputs)
    subprocess.run([sys.executable, "-c", ANSWER], check=True, cwd=tmp_path)
    np.testing.assert_array_equal(np.load(tmp_path / "answers.npy"), model(tf.constant(inputs)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", models.KINDS)
def test_each_export_has_the_rows_of_its_moment(kind, tmp_path):
    model = models.make_model(models.make_layer(kind, tmp_path))
    for folder in ("first", "second"):
        models.fit(model)
        model.export(tmp_path / folder, verbose=False)
        loaded = tf.saved_model.load(str(tmp_path / folder))
        np.testing.assert_array_equal(loaded.serve(tf.constant(models.IDS)), model(models.IDS))


@pytest.mark.slow
def test_a_model_that_was_exported_can_be_deleted(tmp_path):
    layer = models.make_layer("file", tmp_path)
    model = models.make_model(layer)
    model.export(tmp_path / "exported", verbose=False)
    reference = weakref.ref(layer)
    del layer, model
    gc.collect()
    assert reference() is None  # another layer can then have its file


@keras.saving.register_keras_serializable()
class Subclassed(keras.Model):
    """A model of which Keras knows the shapes of the inputs only, and so guesses their dtypes."""

    def __init__(self, key_dtype, **options):
        super().__init__(**options)
        self.key_dtype = key_dtype
        self.embedding = DynamicEmbedding(models.COLUMNS, key_dtype, capacity=40)
        self.dense = keras.layers.Dense(1)

    def call(self, inputs):
        return self.dense(self.embedding(inputs["keys"]))

    def get_config(self):
        return super().get_config() | {"key_dtype": self.key_dtype}


@pytest.mark.parametrize("key_dtype", ["int64", pytest.param("string", marks=pytest.mark.slow)])
def test_a_subclassed_model_is_saved_and_exported(key_dtype, tmp_path):
    model = Subclassed(key_dtype)
    model.compile(LazyAdam(0.1), "mse")
    keys = models.strings() if key_dtype == "string" else models.IDS
    inputs = {"keys": tf.constant(keys[:, 0])}
    batches = tf.data.Dataset.from_tensors((inputs, tf.ones([len(keys), 1])))
    model.fit(batches, shuffle=False, verbose=0)
    answers = model(inputs)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(inputs), answers)
    signature = [{"keys": tf.TensorSpec([None], key_dtype)}]
    model.export(tmp_path / "exported", input_signature=signature, verbose=False)
    exported = tf.saved_model.load(str(tmp_path / "exported"))
    np.testing.assert_array_equal(exported.serve(inputs), answers)
