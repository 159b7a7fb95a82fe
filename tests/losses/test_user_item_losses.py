"""Losses of pairs against numpy."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from app.losses.user_item_losses import Bpr, SquaredError, UserItemBatch, UserItemLoss
from app.types import Rows

WEIGHTS = np.array([1, 0.5, 2, 0, 1, 1], np.float32)


@pytest.fixture(autouse=True)
def on_the_cpu():
    """Where float32 products are float32."""
    with tf.device("CPU:0"):
        yield


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def batch(items, ratings=WEIGHTS):
    """Pairs whose score is the one number of the item's row."""
    rows = Rows(items[:, tf.newaxis], tf.range(len(items)))
    return UserItemBatch(
        *(tf.ones((6, 1)), tf.ones((1, 1)), tf.zeros(6, tf.int32), rows),
        *(tf.constant(ratings), tf.constant(WEIGHTS)),
        encode=lambda rows_ND: rows_ND,
        score=lambda users_NE, items_NE: tf.reduce_sum(users_NE * items_NE, axis=1),
    )


def test_squared_error():
    scores, ratings = drawn(6), drawn(6, seed=1)
    loss = SquaredError(mean=0.5).loss(batch(tf.constant(scores), ratings))
    np.testing.assert_allclose(loss, (WEIGHTS * (scores + 0.5 - ratings) ** 2).sum(), 1e-5)


def test_bpr():
    scores, negatives = drawn(6), drawn(6, 3, seed=1)
    items = tf.constant(np.concatenate([scores, *negatives.T]))
    with tf.GradientTape() as tape:
        tape.watch(items)
        loss = Bpr(negatives=3).loss(batch(items))
    better = scores[:, None] - negatives
    expected = (WEIGHTS * np.log1p(np.exp(-better)).mean(axis=1)).sum()
    np.testing.assert_allclose(loss, expected, 1e-5)
    error = -WEIGHTS[:, None] / (1 + np.exp(better)) / 3
    expected = np.concatenate([error.sum(axis=1), *-error.T])
    np.testing.assert_allclose(tape.gradient(loss, items), expected, 1e-4)


def test_only_squared_error_predicts_ratings():
    assert SquaredError(3.5).predicts_ratings and SquaredError(3.5).mean == 3.5
    assert not Bpr(1).predicts_ratings and Bpr(1).mean == UserItemLoss.mean == 0
