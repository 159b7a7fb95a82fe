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
from app.tables.cached import NONE
from app.tables.row_reads import take
from app.training.gradients import compute_gradients
from app.types import Batch, Rows

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


@pytest.mark.parametrize(("is_mean", "chance"), [(False, None), (True, 0.2), (True, 1e-9)])
def test_xla_computes_the_same_with_padding(is_mean, chance):
    random = np.random.default_rng(0)
    table, weights = (random.normal(size=(n, DIM)).astype("f4") for n in (ROWS, 6))
    ids = tf.constant([[8, 4, 0], [4, 4, 2]])
    lists = RowLists(ROWS_N, STARTS, ROWS, is_mean)
    if chance:
        lists = lists.for_usual(np.full(ITEMS, chance))

    @tf.function(autograph=False, jit_compile=True)
    def differentiate(ids):
        rows_N = lists.lookups(ids)
        with tf.GradientTape() as tape:
            values_ND = tf.gather(table, rows_N)
            tape.watch(values_ND)
            rows = Rows(values_ND, tf.range(rows_N.shape[0]))
            total_D = tf.reduce_sum(take(lists.take_unique(ids, rows), tf.float32) * weights, 0)
        return lists.fit(ids), rows_N, total_D, tape.gradient(total_D, values_ND)

    fits, rows_N, total_D, by_rows = differentiate(ids)
    assert fits == (chance != 1e-9)
    if fits:
        shares_6R = (shares() / (shares().sum(1, keepdims=True) if is_mean else 1))[np.ravel(ids)]
        np.testing.assert_allclose(total_D, (weights * (shares_6R @ table)).sum(0), 1e-5, 1e-6)
        found, is_row_N = np.zeros_like(table), rows_N < ROWS
        assert sum(is_row_N.numpy()) == shares()[[0, 2, 4, 8]].sum()
        np.add.at(found, rows_N[is_row_N], by_rows[is_row_N])
        np.testing.assert_allclose(found, shares_6R.T @ weights, 1e-5, 1e-6)


def test_padding_without_xla_looks_up_no_row():
    table = np.random.default_rng(0).normal(size=(ROWS, DIM)).astype("f4")
    lists = RowLists(ROWS_N, STARTS, ROWS, is_static=True)
    sizes = set()
    for ids in ([8, 8, 8], [5, 6, 3]):
        rows_N = lists.lookups(tf.constant(ids))
        sizes.add(len(rows_N))
        assert {*rows_N.numpy()} - {NONE} == {*np.flatnonzero(shares()[ids].sum(0))}
        located_N = tf.maximum(rows_N, 0)  # as padding is given any row
        found = lists.take_unique(tf.constant(ids), Rows(tf.constant(table), located_N))
        np.testing.assert_allclose(take(found, tf.float32), (shares() @ table)[ids], 1e-5, 1e-6)
    assert len(sizes) == 1


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
        found = compute_gradients(one, gather_from(tables), [batch])
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
