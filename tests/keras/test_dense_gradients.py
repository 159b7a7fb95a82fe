"""Gradients of whole tables, as of embeddings that are tied to the output."""

from __future__ import annotations

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.keras import LossScaleOptimizer, RowEmbedding
from tests.keras.updates import (
    KINDS,
    RATE,
    ROWS,
    ROWWISE,
    make_stream,
    make_variables,
    near,
    ours,
    theirs,
    trained,
    whole,
)
from tests.reference import optimizers as reference

# Whose state of a table is by row.
BY_ROW = ["corrected", "adamw, corrected", "rowwise"]


def gradient_of(table, ids, values, kind):
    """The gradient of the table: that of its rows, of the whole, or of both together."""
    if kind == "sparse":
        return tf.IndexedSlices(tf.constant(values), tf.constant(ids), table.shape)
    if kind == "dense":
        return tf.constant(whole(ids, values))
    half = len(ids) // 2
    with tf.GradientTape() as tape:
        rows = tf.gather(table.value, ids[:half])
        total = tf.reduce_sum(rows * values[:half])
        total += tf.reduce_sum(table.value * whole(ids[half:], values[half:]))
    return tape.gradient(total, table.value)


def end(optimizer, kinds, variables=None):
    """The table after the stream, with gradients of these kinds by turns."""
    table = (variables or make_variables())[0]
    table.is_table = True
    for step, (ids, values, _) in enumerate(make_stream()):
        optimizer.apply([gradient_of(table, ids, values, kinds[step % len(kinds)])], [table])
    return table.numpy()


def by_the_paper(name):
    _, _, rule, options = (KINDS | {"rowwise": ROWWISE})[name]
    rows = make_variables()[0].numpy().astype(np.float64)
    stream = ((ids, values, RATE) for ids, values, _ in make_stream())
    reference.train(functools.partial(rule, **options), rows, stream)
    return rows


@pytest.mark.parametrize("kinds", [["dense"], ["mixed"], ["sparse", "dense", "mixed"]], ids=str)
@pytest.mark.parametrize("name", BY_ROW)
def test_state_by_row_follows_its_rule_whatever_the_gradient(name, kinds):
    near([end(ours(name), kinds)], [by_the_paper(name)])


@pytest.mark.parametrize("kind", ["dense", "mixed"])
@pytest.mark.parametrize("name", [name for name in KINDS if name not in BY_ROW])
def test_other_tables_get_the_numbers_of_keras(name, kind):
    near([end(ours(name), [kind])], [end(theirs(name), ["dense"])])


@pytest.mark.parametrize("name", ["sgd", "adagrad"])
def test_kinds_by_turns_are_one_dense_optimizer(name):
    near([end(ours(name), ["sparse", "dense", "mixed"])], [end(theirs(name), ["dense"])])


@pytest.mark.parametrize("name", BY_ROW)
def test_a_table_of_few_bits(name):
    nearest = {"rounding": "nearest"}  # draws depend on the order of the rows
    found = end(ours(name, **nearest), ["dense"], make_variables(dtype="bfloat16"))
    np.testing.assert_allclose(found.astype("f"), by_the_paper(name), atol=0.1)
    np.testing.assert_array_equal(
        found, end(ours(name, **nearest), ["sparse"], make_variables(dtype="bfloat16"))
    )


@pytest.mark.slow
def test_a_model_of_tied_embeddings_trains():
    """By the optimizer that failed where their gradient was dense."""
    keras.utils.set_random_seed(0)
    layer = RowEmbedding(ROWS, 3)
    ids = keras.Input((2,), dtype="int32")
    hidden = keras.layers.GlobalAveragePooling1D()(layer(ids))
    scores = Tied(layer)(hidden)
    model = keras.Model(ids, scores)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = ours("rowwise")
    model.compile(optimizer, loss, jit_compile=False)
    before = layer.get_weights()[0].astype(np.float64)
    x, y = np.array([[1, 1], [2, 5]]), np.array([3, 4])
    model.fit(x, y, batch_size=2, verbose=0)
    hidden = before[x].mean(axis=1)
    chances = np.exp(hidden @ before.T)
    errors = (chances / chances.sum(axis=1, keepdims=True) - np.eye(ROWS)[y]) / 2
    gradient = errors.T @ hidden
    np.add.at(gradient, x, (errors @ before)[:, np.newaxis] / 2)
    accumulators = 0.1 + (gradient**2).mean(axis=1, keepdims=True)
    expected = before - RATE * gradient / np.sqrt(accumulators + 1e-3)
    near([*layer.get_weights(), optimizer.row_slots(0)["accumulator"]], [expected, accumulators])


class Tied(keras.layers.Layer):
    """Scores of all rows of an embedding."""

    def __init__(self, embedding):
        super().__init__()
        self.embedding = embedding

    def call(self, hidden):
        return tf.matmul(hidden, self.embedding.embeddings, transpose_b=True)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("name", ["sgd", "corrected", "rowwise"])
def test_what_is_given_may_be_read_once_only(name, scaled):
    scale = 64.0 if scaled else 1.0
    variables = make_variables()
    variables[0].is_table = name == "rowwise"
    optimizer = inner = ours(name)
    if scaled:
        optimizer = LossScaleOptimizer(inner, initial_scale=scale)
    for ids, values, dense in make_stream(scale=scale):
        gradients = [gradient_of(variables[0], ids, values, "sparse"), *map(tf.constant, dense)]
        optimizer.apply((each for each in gradients), (each for each in variables))
    near([each.numpy() for each in variables], trained(name)[0][-1][:3])


@pytest.mark.parametrize("name", ["sgd", "corrected", "rowwise"])
def test_an_optimizer_may_be_built_of_a_generator(name):
    variables = make_variables()
    variables[0].is_table = name == "rowwise"
    optimizer = ours(name)
    optimizer.build(each for each in variables)
    ids, values, dense = next(make_stream())
    gradients = [gradient_of(variables[0], ids, values, "sparse"), *map(tf.constant, dense)]
    optimizer.apply(gradients)
    near([each.numpy() for each in variables], trained(name)[0][0][:3])
    optimizer.apply_gradients(zip(gradients, variables, strict=True))
