"""A small model with two tables, one of them for two inputs, and batches that touch every row."""

import contextlib

import keras
import numpy as np

from app.keras import RowEmbedding

WORDS, PLACES, COLUMNS, LENGTH, BATCH, BATCHES = 13, 5, 4, 3, 6, 3


def make_model(optimizer, embedding=RowEmbedding, words=WORDS, constraint=None, **compiled):
    """Of the same weights whatever the embedding."""
    keras.utils.set_random_seed(0)
    left, right = (keras.Input((LENGTH,), dtype="int32", name=name) for name in ("left", "right"))
    shared = embedding(words, COLUMNS, name="words", embeddings_constraint=constraint)
    other = embedding(PLACES, 2, name="places")
    flat = keras.layers.Flatten()
    mean = keras.layers.GlobalAveragePooling1D()(shared(right))
    joined = keras.layers.Concatenate()([flat(shared(left)), mean, flat(other(right))])
    normal = keras.layers.LayerNormalization(name="normal")(joined)
    scores = keras.layers.Dense(1, dtype="float32", name="scores")(normal)
    model = keras.Model([left, right], scores)
    model.compile(optimizer, "mse", **compiled)
    return model


def make_data(words=WORDS):
    """Inputs and targets of BATCHES batches; in each, every word and every place at least once."""
    random = np.random.default_rng(0)
    batches = []
    for _ in range(BATCHES):
        left = np.append(np.arange(WORDS), random.integers(0, WORDS, BATCH * LENGTH - WORDS))
        right = np.append(np.arange(PLACES), random.integers(0, PLACES, BATCH * LENGTH - PLACES))
        batches.append([random.permutation(ids).reshape(BATCH, LENGTH) for ids in (left, right)])
    left, right = (np.concatenate(side).astype(np.int32) for side in zip(*batches, strict=True))
    return (left, right), random.normal(size=(BATCH * BATCHES, 1)).astype(np.float32)


def fit(model, **options):
    x, y = make_data()
    return model.fit(
        x, y, **{"batch_size": BATCH, "epochs": 2, "shuffle": False, "verbose": 0} | options
    )


@contextlib.contextmanager
def dtype_policy(name):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def near(model, other, error=1e-5):
    assert [v.name for v in model.weights] == [v.name for v in other.weights]
    for ours, theirs in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=error, atol=error)
