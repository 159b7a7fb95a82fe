"""Keras finds the optimizers, layers and the loss of this package by their names."""

from __future__ import annotations

import keras
import numpy as np
import pytest

import app.keras
from app.keras import LazyAdam, LazyAdamW, RowEmbedding, RowwiseAdagrad
from tests.keras import table_models as models

OPTIMIZERS = {
    **dict.fromkeys(("lazy_adam", "LazyAdam", "lazyadam"), LazyAdam),
    **dict.fromkeys(("lazy_adamw", "LazyAdamW"), LazyAdamW),
    **dict.fromkeys(("rowwise_adagrad", "RowwiseAdagrad"), RowwiseAdagrad),
    **{f"lexrow>{kind}": getattr(app.keras, kind) for kind in ("SGD", "Adagrad", "Ftrl")},
    "sgd": keras.optimizers.SGD,
    "Adagrad": keras.optimizers.Adagrad,  # as ever
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_by_name(name):
    assert type(keras.optimizers.get(name)) is OPTIMIZERS[name]
    config = {"learning_rate": 0.25}
    found = keras.optimizers.get({"class_name": name, "config": config})
    assert type(found) is OPTIMIZERS[name] and float(found.learning_rate.numpy()) == 0.25
    again = keras.optimizers.deserialize(keras.optimizers.serialize(found))
    assert type(again) is OPTIMIZERS[name]


def test_a_model_that_is_compiled_by_names_trains_and_is_saved(tmp_path):
    tokens, words = keras.Input((3,), dtype="int32"), keras.Input((3,), dtype="int32")
    hidden = RowEmbedding(20, 4)(tokens)
    model = keras.Model([tokens, words], app.keras.Softmax(20)(hidden, words))
    model.compile("lazy_adam", "output_as_loss")
    ids = np.arange(12).reshape(4, 3)
    model.fit([ids, ids], ids, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.optimizer) is LazyAdam
    assert loaded.evaluate([ids, ids], ids, verbose=0) == model.evaluate([ids, ids], ids, verbose=0)


@pytest.mark.parametrize("start", ["", "lexrow>"])
@pytest.mark.parametrize("name", ["RowEmbedding", "RowEmbeddingReduce"])
def test_a_layer_by_name(name, start):
    config = {"input_dim": 7, "output_dim": 2}
    layer = keras.layers.deserialize({"class_name": f"{start}{name}", "config": config})
    assert type(layer) is getattr(app.keras, name) and layer.input_dim == 7


class Softmax(keras.layers.Layer):
    """A class of somebody else, with the name of one of this package."""


def test_a_class_of_the_user_keeps_its_name(tmp_path):
    model = keras.Sequential([keras.Input((2,)), Softmax()])
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras", {"Softmax": Softmax})
    assert type(loaded.layers[0]) is Softmax


@pytest.mark.parametrize("kind", ["device", "host"])
def test_names_in_a_file_are_those_of_the_installed_package(kind, tmp_path):
    model = models.make_model(models.make_layer(kind, tmp_path))
    config = keras.saving.serialize_keras_object(model)
    names = [layer["registered_name"] for layer in config["config"]["layers"]]
    assert "lexrow>RowEmbedding" in names
