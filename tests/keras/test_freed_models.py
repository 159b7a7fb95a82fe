"""A model that is deleted leaves no table behind."""

from __future__ import annotations

import gc
import weakref

import keras
import numpy as np
import pytest

from app.keras import DynamicEmbedding, LazyAdam, RowEmbedding, RowEmbeddingReduce, output_as_loss
from tests.keras.softmax_models import LAYERS as OUTPUTS
from tests.keras.softmax_models import WORDS

DIM, IDS = 6, np.arange(24).reshape(8, 3)


EMBEDDINGS = {
    "device": lambda: RowEmbedding(WORDS, DIM),
    "host": lambda: RowEmbedding(WORDS, DIM, table="host"),
    "cached": lambda: RowEmbedding(WORDS, DIM, table="host", hot_rows=30),
    "dynamic": lambda: DynamicEmbedding(DIM, capacity=WORDS, key_dtype="int64"),
    "reduce": lambda: RowEmbeddingReduce(WORDS, DIM),
    "reduce on the host": lambda: RowEmbeddingReduce(WORDS, DIM, table="host"),
}


def references(model):
    """Weak references to the rows of all tables and to all other variables."""
    variables = [*model.variables, *model.optimizer.variables]
    tables = [variable.table for variable in variables if hasattr(variable, "table")]
    return [*map(weakref.ref, tables), *(weakref.ref(one.value.handle) for one in variables)]


def some(names, fast):
    """Parameters of a test, of which all but the given are slow."""
    return [pytest.param(name, marks=[] if name in fast else pytest.mark.slow) for name in names]


@pytest.mark.slow
@pytest.mark.parametrize("name", some(EMBEDDINGS, ["host", "reduce"]))
def test_the_tables_of_a_deleted_model_are_freed(name):
    def train():
        ids = keras.Input((3,), dtype="int64")
        rows = keras.layers.Flatten()(EMBEDDINGS[name]()(ids))
        model = keras.Model(ids, keras.layers.Dense(1)(rows))
        model.compile(LazyAdam(), "mse")
        model.fit(IDS, np.ones(8), verbose=0)
        model.predict(IDS, verbose=0)
        return references(model)

    assert freed(train)


@pytest.mark.slow
@pytest.mark.parametrize("name", some(OUTPUTS, ["classes"]))
def test_the_tables_of_a_deleted_output_layer_are_freed(name):
    def train():
        ids, targets = keras.Input((3,), dtype="int32"), keras.Input((3,), dtype="int32")
        hidden = RowEmbedding(WORDS, DIM)(ids)
        model = keras.Model([ids, targets], OUTPUTS[name]()(hidden, targets))
        model.compile(LazyAdam(), output_as_loss)
        model.fit([IDS, IDS], IDS, verbose=0)
        model.evaluate([IDS, IDS], IDS, verbose=0)
        return references(model)

    assert freed(train)


def freed(train):
    """Whether all variables are gone that were made by a call of `train`."""
    alive = train()
    keras.backend.clear_session()
    gc.collect()
    gc.collect()  # an object may be resurrected by a finalizer
    return [reference() for reference in alive] == [None] * len(alive)
