"""Weights of another kind or size of layer are refused by name, and the layer keeps its own."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

from app.keras import DynamicEmbedding, RowEmbedding
from tests.keras import table_models as models

DYNAMIC = {"output_dim": models.COLUMNS, "key_dtype": "int64", "capacity": 40}


def make_model(kind, folder):
    if kind in models.KINDS:
        return models.make_model(models.make_layer(kind, folder, name="words"))
    layer = DynamicEmbedding(**DYNAMIC | {"key_dtype": kind}, name="words")
    return models.make_model(layer, dtype=kind)


def train(model):
    strings = getattr(model.layers[0], "key_dtype", None) == "string"
    models.fit(model, models.data(models.strings() if strings else models.IDS))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("saved", "other"), list(itertools.permutations(["host", "int64", "string"], 2))
)
def test_weights_of_another_kind(saved, other, tmp_path):
    saved, other = make_model(saved, tmp_path), make_model(other, tmp_path)
    train(saved)
    train(other)
    before = other.layers[0].embeddings.numpy().tobytes()
    saved.save_weights(tmp_path / "all.weights.h5")
    with pytest.raises(ValueError, match="words.*(have no keys|key_dtype=|expected 1 variables)"):
        other.load_weights(tmp_path / "all.weights.h5")
    assert other.layers[0].embeddings.numpy().tobytes() == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "change", [{"capacity": 50}, {"capacity": 30}, {"min_count": 2}, {"output_dim": 5}]
)
def test_keys_of_a_layer_with_other_arguments(change, tmp_path):
    saved = make_model("int64", tmp_path)
    other = models.make_model(DynamicEmbedding(**DYNAMIC | change, name="words"))
    train(saved)
    saved.save_weights(tmp_path / "all.weights.h5")
    words = "the saved keys are .* capacity=40, key_dtype='int64' and min_count=1; make the layer"
    if "output_dim" in change:
        words = "the saved rows have 6 columns, where the layer has 5; make the layer with"
    with pytest.raises(ValueError, match=f"words: {words}"):
        other.load_weights(tmp_path / "all.weights.h5")
    assert len(other.layers[0].key_map) == 0
    if "output_dim" not in change:
        tf.train.Checkpoint(saved).write(str(tmp_path / "checkpoint"))
        with pytest.raises(ValueError, match=f"words: {words}"):
            tf.train.Checkpoint(other).read(str(tmp_path / "checkpoint"))
        assert len(other.layers[0].key_map) == 0


@pytest.mark.parametrize("kind", models.KINDS)
def test_rows_of_a_table_of_another_size(kind, tmp_path):
    saved = make_model(kind, tmp_path)
    file = {"table_file": str(tmp_path / "other.bin")} if kind == "file" else {}
    layer = RowEmbedding(models.ROWS - 1, models.COLUMNS, table=kind, name="words", **file)
    other = models.make_model(layer)
    before = layer.get_weights()[0]
    saved.save_weights(tmp_path / "all.weights.h5")
    tf.train.Checkpoint(saved).write(str(tmp_path / "checkpoint"))
    words = r"words/embeddings has shape \(49, 6\), not \(50, 6\); use a layer of the size"
    with pytest.raises(ValueError, match=words):
        other.load_weights(tmp_path / "all.weights.h5")
    with pytest.raises(ValueError, match=words):
        tf.train.Checkpoint(other).read(str(tmp_path / "checkpoint"))
    np.testing.assert_array_equal(layer.get_weights()[0], before)
