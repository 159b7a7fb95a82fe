"""Models with tables are trained in every way that Keras has, to the numbers of the dense one."""

from __future__ import annotations

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.keras import SGD, Adagrad, LazyAdam, LazyAdamW
from tests.keras.models import BATCH, LENGTH, WORDS, fit, make_data, make_model, near
from tests.reference.dense_embedding import DenseEmbedding

OPTIONS = {"weight_decay": 0.1, "global_clipnorm": 0.5, "clipnorm": None}


def batches():
    (left, right), y = make_data()
    for _ in range(2):
        for start in range(0, len(y), BATCH):
            part = slice(start, start + BATCH)
            yield (left[part], right[part]), y[part]


@functools.cache
def trained_by_keras(kind=keras.optimizers.AdamW, policy=None, **options):
    """A model whose gradients are all dense."""
    model = make_model(kind(0.05, **options or OPTIONS), DenseEmbedding, run_eagerly=True)
    fit(model)
    return model


def on_batches(model):
    for x, y in batches():
        model.train_on_batch(x, y)


def in_a_loop(model):
    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    for x, y in batches():
        step(x, y)


def from_a_dataset(model):
    """Whose batches are of a size that the trace does not know."""
    x, y = make_data()
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
    model.fit(data, epochs=2, shuffle=False, verbose=0)


@pytest.mark.parametrize(
    ("run", "compiled"),
    [
        (fit, {}),
        (fit, {"run_eagerly": True}),
        (fit, {"steps_per_execution": 2}),
        (fit, {"jit_compile": True}),
        (on_batches, {}),
        (in_a_loop, {}),
        (from_a_dataset, {}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else value.__name__,
)
def test_every_way_to_train_gives_the_numbers_of_the_dense_model(run, compiled):
    model = make_model(LazyAdamW(0.05, **OPTIONS), **compiled)
    assert model.jit_compile == ("jit_compile" in compiled)
    run(model)
    assert int(model.optimizer.iterations) == 6
    near(model, trained_by_keras())


def test_slots_are_named_as_by_keras():
    paths = []
    for optimizer in (LazyAdam(0.1, name="a"), keras.optimizers.Adam(0.1, name="a")):
        model = make_model(optimizer, run_eagerly=True)
        model.train_on_batch(*next(batches()))
        paths.append([variable.path for variable in optimizer.variables])
    assert paths[0] == paths[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("constraint", "run_eagerly"),
    [
        ("non_neg", True),
        (keras.constraints.UnitNorm(axis=1), False),
        (keras.constraints.MaxNorm(0.05, axis=1), True),
    ],
)
def test_constraints_are_kept_by_the_rows_of_the_batch(constraint, run_eagerly):
    ours = make_model(SGD(0.1), constraint=constraint, run_eagerly=run_eagerly)
    theirs = make_model("sgd", DenseEmbedding, constraint=constraint, run_eagerly=True)
    theirs.optimizer.learning_rate = 0.1
    for model in (ours, theirs):
        fit(model)
    near(ours, theirs)
    table = ours.get_layer("words").embeddings
    assert table.constraint is ours.get_layer("words").embeddings_constraint
    before = table.numpy()
    ones = np.ones([1, LENGTH], np.int32)
    ours.train_on_batch((ones, ones), np.ones([1, 1]))
    idle = np.arange(WORDS) != 1
    assert table.numpy()[idle].tobytes() == before[idle].tobytes()
    assert (table.numpy()[1] != before[1]).any()


@pytest.mark.slow
def test_a_plain_embedding_is_trained_right():
    model = make_model(Adagrad(0.05), keras.layers.Embedding)
    fit(model)
    near(model, trained_by_keras(keras.optimizers.Adagrad, epsilon=1e-7))


@pytest.mark.slow
def test_a_plain_embedding_keeps_a_constraint_on_columns():
    constraint = keras.constraints.UnitNorm(axis=0)
    models = [
        make_model(optimizer, embedding, constraint=constraint, run_eagerly=True)
        for optimizer, embedding in (
            (SGD(0.1), keras.layers.Embedding),
            (keras.optimizers.SGD(0.1), DenseEmbedding),
        )
    ]
    for model in models:
        fit(model)
    near(*models)
