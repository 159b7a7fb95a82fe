"""`to_keras` gives a model of Keras alone, with the same answers."""

from __future__ import annotations

import subprocess
import sys

import keras
import numpy as np
import pytest

from app.keras import (
    DynamicEmbedding,
    FeatureConfig,
    FeatureEmbedding,
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
