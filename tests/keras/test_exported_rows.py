"""A SavedModel of a model with a table of any kind answers where this package is not installed."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from app.keras import DynamicEmbedding
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


@pytest.mark.parametrize("kind", models.KINDS)
def test_each_export_has_the_rows_of_its_moment(kind, tmp_path):
    model = models.make_model(models.make_layer(kind, tmp_path))
    for folder in ("first", "second"):
        models.fit(model)
        model.export(tmp_path / folder, verbose=False)
        loaded = tf.saved_model.load(str(tmp_path / folder))
        np.testing.assert_array_equal(loaded.serve(tf.constant(models.IDS)), model(models.IDS))
