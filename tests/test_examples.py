"""Every public name has an example in its docstring; those for Keras and scikit-learn run here.

The examples of `lexrow` run where the models are trained that they ask.
"""

from __future__ import annotations

import inspect
from typing import Any

import keras
import numpy
import pytest
import tensorflow as tf

import app as lexrow
import app.keras
import app.sklearn
from tests import examples


def public_names(module: Any) -> dict[str, Any]:
    """Return what a module is imported for, and the methods of its own classes, by name."""
    names = getattr(module, "__all__", dir(module))
    found = {name: getattr(module, name) for name in names if not name.startswith("_")}
    for name, kind in [*found.items()]:
        if module is lexrow and inspect.isclass(kind):
            methods = inspect.getmembers(kind, inspect.isroutine)
            found |= {f"{name}.{key}": one for key, one in methods if not key.startswith("_")}
    return found


@pytest.mark.parametrize("module", [lexrow, app.keras, app.sklearn], ids=lambda one: one.__name__)
def test_public_names_have_an_example(module):
    names = public_names(module)
    methods = {name.partition(".")[0] for name in names if "." in name}  # of classes that have them
    lacking = [n for n, one in names.items() if ">>>" not in (one.__doc__ or "")]
    assert sorted({*lacking} - methods) == []


@pytest.fixture
def given() -> dict[str, Any]:
    """The names that the examples for Keras use: a model that is trained on ids, and texts."""
    ids, targets = numpy.arange(64).reshape(32, 2), numpy.ones((32, 1), numpy.float32)
    layers = app.keras.RowEmbedding(64, 4), keras.layers.Flatten(), keras.layers.Dense(1)
    model = keras.Sequential([keras.Input((2,), dtype="int32"), *layers])
    model.compile(app.keras.LazyAdam(0.001), loss="mse")
    model.optimizer.build(model.trainable_variables)
    tokens, words = (keras.Input((None,), dtype="int32") for _ in range(2))

    slices = tf.IndexedSlices(tf.ones((1, 4)), tf.constant([3]), tf.constant([64, 4]))
    return {
        "keras": keras, "numpy": numpy, "tf": tf, "lexrow": lexrow, "model": model,
        "x": ids, "y": targets, "tokens": tokens, "words": words,
        "hidden": app.keras.RowEmbedding(64, 4)(tokens),
        "counts": numpy.arange(10_000, 0, -1),
        "dataset": tf.data.Dataset.from_tensor_slices((ids, targets)).batch(8),
        "first_gradients": [slices], "second_gradients": [slices],
        "titles": keras.Input((20,), dtype="int32"), "queries": keras.Input((5,), dtype="int32"),
        "user_ids": keras.Input((), dtype="int32"),
    }  # fmt: skip


# Keras itself warns of these.
@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy")
@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")
@pytest.mark.parametrize(
    "name",  # XLA compiles one of them
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name == "compile_steps"))
        for name in app.keras.__all__
    ],
)
def test_examples_for_keras(name, given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vectors.vec").write_text("2 3\nking 1 2 3\nqueen 4 5 6\n")
    examples.run(getattr(app.keras, name), given)


@pytest.mark.parametrize("name", app.sklearn.__all__)
def test_examples_for_scikit_learn(name):
    examples.run(getattr(app.sklearn, name), vars(app.sklearn))
