"""The softmax over the items of a batch against the plain formula and its gradients."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from app.losses.user_item_losses import in_batch_softmax, log_expected

WEIGHTS = np.array([1, 0.5, 2, 0, 1, 1], np.float32)
PLACES = np.array([0, 1, 0, 2, 3, 1], np.int32)  # items that come twice, and one of weight 0


@pytest.fixture(autouse=True)
def on_the_cpu():
    """Where float32 products are float32."""
    with tf.device("CPU:0"):
        yield


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(("dtype", "tolerance"), [(tf.float32, 1e-4), (tf.bfloat16, 0.03)])
def test_loss_and_gradients(dtype, tolerance):
    users, items = tf.constant(drawn(6, 4)), tf.constant(drawn(6, 4, seed=1))
    expected = np.log([0.9, 0.5, 0.2, 0.1, 1, 1]).astype(np.float32)
    expected[4:] = np.inf  # columns that are no items

    def plain():
        scores = (users @ tf.transpose(items) - expected)[:, :4]
        return WEIGHTS * tf.nn.sparse_softmax_cross_entropy_with_logits(PLACES, scores)

    with tf.GradientTape(persistent=True) as tape:
        tape.watch([users, items])
        loss = in_batch_softmax(
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
        loss = in_batch_softmax(
            users, items, tf.constant([0.0, np.inf]), tf.zeros(2, tf.int32), tf.zeros(2)
        )
    assert all(not gradient.numpy().any() for gradient in tape.gradient(loss, [users, items]))


def test_the_chance_of_an_item_to_be_in_a_batch():
    np.testing.assert_allclose(log_expected(np.array([3, 1]), 2), np.log([1 - 1 / 16, 1 - 9 / 16]))
    assert log_expected(np.array([5]), 4)[0] == 0
