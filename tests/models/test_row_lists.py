"""Vectors that are sums of rows, and a recommender of such vectors, against numpy."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from app.input.named_features import gather
from app.input.user_item_pairs import UserItemPairs
from app.losses.base import gather_from
from app.losses.user_item_losses import Bpr, InBatchSoftmax, SquaredError
from app.models.recommender import Recommender
from app.models.row_lists import RowLists
from app.models.scorers import MatrixFactorization
from app.training.gradients import compute_gradients
from app.types import Batch

ITEMS, TRAINED, USERS, DIM = 9, 7, 5, 4
FEATURES = {f"i{n}": [f"f{n % 3}", f"g{n % 2}"] for n in range(ITEMS) if n != 4}
FOUND = gather(FEATURES, [f"i{n}" for n in range(ITEMS)], TRAINED)
ROWS_N, STARTS, ROWS = FOUND.table_rows(TRAINED)


def shares():
    """How often each vector has each row, (V, rows)."""
    shares = np.zeros((ITEMS, ROWS), np.float32)
    np.add.at(shares, (np.repeat(np.arange(ITEMS), np.diff(STARTS)), ROWS_N), 1)
    return shares


def test_sums():
    table = np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32)
    ids = tf.constant([8, 4, 0])
    found = RowLists(ROWS_N, STARTS, ROWS).compose(ids, lambda ids_U: tf.gather(table, ids_U))
    np.testing.assert_allclose(found, (shares() @ table)[ids], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("ids", [[0, 1], [1], []])
def test_a_partition_may_have_no_rows(ids):
    table = tf.ones((6, DIM))
    lists = RowLists(np.array([0, 2, 4], np.int32), np.array([0, 1, 3]), 6)
    with tf.GradientTape() as tape:
        tape.watch(table)
        sums = lists.compose(tf.constant(ids, tf.int32), lambda ids_U: tf.gather(table, ids_U))
    gradient = tf.convert_to_tensor(tape.gradient(sums, table))
    np.testing.assert_allclose(sums, np.reshape([[1.0 + one] * DIM for one in ids], (-1, DIM)))
    assert tf.reduce_sum(gradient) == tf.reduce_sum(sums)


class Dense:
    """A table as a matrix."""

    device = "CPU:0"

    def __init__(self, rows):
        self.rows_VD = tf.constant(rows)

    def gather(self, ids_U):
        return tf.gather(self.rows_VD, ids_U)


@pytest.mark.parametrize(
    "loss",
    [
        Bpr(2),
        SquaredError(0.5),
        InBatchSoftmax(tf.Variable(np.log(np.linspace(0.2, 0.9, TRAINED)).astype(np.float32))),
    ],
    ids=lambda loss: type(loss).__name__,
)
def test_gradients_are_those_of_sums(loss):
    """The gradient of a row is the sum of those of the vectors that have it."""
    random = np.random.default_rng(1)
    plain = Recommender(USERS, TRAINED, MatrixFactorization(DIM), loss, seed=3, row_l2=0.1)
    lists = {"items": RowLists(ROWS_N, STARTS, ROWS)}
    model = dataclasses.replace(plain, items=ITEMS, new_items=ITEMS - TRAINED, lists=lists)
    specs = model.tables()
    assert specs["items"].rows == ROWS and specs["users"].rows == USERS
    rows = {name: random.normal(size=(s.rows, s.columns)).astype("f4") for name, s in specs.items()}
    composed = {**rows, "items": (shares() @ rows["items"])[:TRAINED]}
    pairs = UserItemPairs(
        tf.constant([0, 3, 3, 1, 0, 4]),
        tf.constant([6, 0, 2, 4, 4, 4]),
        tf.constant([1.0, 2, 3, 4, 5, 0]),
        tf.constant([1.0, 1, 2, 1, 1, 0]),
    )
    batch = Batch(pairs, tf.constant([7, 11], tf.int64))
    results = []
    for one, values in ((model, rows), (plain, composed)):
        tables = {name: Dense(value) for name, value in values.items()}
        found = compute_gradients(one, gather_from(tables), [batch], dict.fromkeys(tables, "CPU:0"))
        dense = {}
        for name, gradient in found.gradients.items():
            name = name.split("/")[0]
            dense.setdefault(name, np.zeros_like(values[name]))
            np.add.at(dense[name], gradient.ids_U.numpy(), gradient.values_UD.numpy())
        results.append((found.loss.numpy(), dense))
    (total, dense), (expected, of_vectors) = results
    np.testing.assert_allclose(total, expected, rtol=1e-5)
    np.testing.assert_allclose(dense["users"], of_vectors["users"], rtol=1e-4, atol=1e-5)
    by_rows = shares()[:TRAINED].T @ of_vectors["items"]
    np.testing.assert_allclose(dense["items"], by_rows, rtol=1e-4, atol=1e-5)


def test_items_without_pairs_are_not_drawn():
    model = Recommender(
        USERS, ITEMS, MatrixFactorization(DIM), Bpr(50), seed=3, new_items=ITEMS - TRAINED,
        lists={"items": RowLists(ROWS_N, STARTS, ROWS)},
    )  # fmt: skip
    zeros = tf.zeros([4], tf.int32)
    pairs = UserItemPairs(zeros, zeros, tf.ones([4]), tf.ones([4]))
    ids = model._ids(Batch(pairs, tf.constant([7, 11], tf.int64)))["items"]
    assert set(ids.numpy().tolist()) == set(range(TRAINED))
