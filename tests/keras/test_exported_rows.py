"""A SavedModel of a model with a table of any kind answers where this package is not installed."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.keras import DynamicEmbedding, LazyAdam
from tests.keras import table_models as models

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
