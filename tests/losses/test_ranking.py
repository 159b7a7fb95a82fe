"""Losses of pairs against numpy, and against the gradients of the plain formula."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from app.losses import ranking

WEIGHTS = np.array([1, 0.5, 2, 0, 1, 1], np.float32)
PLACES = np.array([0, 1, 0, 2, 3, 1], np.int32)  # items that come twice, and one of weight 0


@pytest.fixture(autouse=True)
def on_the_cpu():
    """Where float32 products are float32."""
    with tf.device("CPU:0"):
        yield


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_squared_error():
    scores, ratings = drawn(6), drawn(6, seed=1)
    expected = (WEIGHTS * (scores - ratings) ** 2).sum()
    np.testing.assert_allclose(ranking.squared_error(scores, ratings, WEIGHTS), expected, 1e-5)


def test_bpr():
    scores, negatives = tf.constant(drawn(6)), tf.constant(drawn(6, 3, seed=1))
    with tf.GradientTape() as tape:
        tape.watch([scores, negatives])
        loss = ranking.bpr(scores, negatives, tf.constant(WEIGHTS))
    better = scores.numpy()[:, None] - negatives.numpy()
    expected = (WEIGHTS * np.log1p(np.exp(-better)).mean(axis=1)).sum()
    np.testing.assert_allclose(loss, expected, 1e-5)
    by_score, by_negative = tape.gradient(loss, [scores, negatives])
    error = -WEIGHTS[:, None] / (1 + np.exp(better)) / 3
    np.testing.assert_allclose(by_score, error.sum(axis=1), 1e-4)
    np.testing.assert_allclose(by_negative, -error, 1e-4)


@pytest.mark.parametrize(("dtype", "tolerance"), [(tf.float32, 1e-4), (tf.bfloat16, 0.03)])
def test_in_batch_softmax(dtype, tolerance):
    users, items = tf.constant(drawn(6, 4)), tf.constant(drawn(6, 4, seed=1))
    expected = np.log([0.9, 0.5, 0.2, 0.1, 1, 1]).astype(np.float32)
    expected[4:] = np.inf  # columns that are no items

    def plain():
        scores = (users @ tf.transpose(items) - expected)[:, :4]
        return WEIGHTS * tf.nn.sparse_softmax_cross_entropy_with_logits(PLACES, scores)

    with tf.GradientTape(persistent=True) as tape:
        tape.watch([users, items])
        loss = ranking.in_batch_softmax(
            users, items, tf.constant(expected), tf.constant(PLACES), tf.constant(WEIGHTS), dtype
        )
        other = tf.reduce_sum(plain())
    np.testing.assert_allclose(loss, other, tolerance)
    for number, operand in enumerate((users, items)):
        found, wanted = (tape.gradient(of, operand, tf.constant(3.0)) for of in (loss, other))
        np.testing.assert_allclose(found, wanted, atol=8 * tolerance, err_msg=number)
    by_user, by_item = tape.gradient(loss, [users, items])
    assert not by_user[3].numpy().any() and not by_item[4:].numpy().any()


def test_of_no_weight_there_is_no_gradient_at_all():
    users, items = tf.constant(drawn(2, 3)), tf.constant(drawn(2, 3))
    with tf.GradientTape() as tape:
        tape.watch([users, items])
        loss = ranking.in_batch_softmax(
            users, items, tf.constant([0.0, np.inf]), tf.zeros(2, tf.int32), tf.zeros(2)
        )
    assert all(not gradient.numpy().any() for gradient in tape.gradient(loss, [users, items]))
