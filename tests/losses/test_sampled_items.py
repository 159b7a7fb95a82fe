"""The softmax of items against samples: the plain formula, its gradients, and what it estimates."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from app.losses.sampling import Unigram
from app.losses.user_item_losses import sampled_items_softmax

USERS = np.array([0, 0, 1, 2, 2, 1], np.int32)
ITEMS = np.array([0, 1, 0, 2, 3, 1], np.int32)  # positions of the items of pairs
SAMPLES = np.array([4, 1, 4, 0], np.int32)  # one drawn twice, two that pairs have as well
WEIGHTS = np.array([1, 0.5, 2, 0, 1, 1], np.float32)
EXPECTED = np.log([0.9, 0.5, 2.0, 0.1]).astype(np.float32)


@pytest.fixture(autouse=True)
def on_the_cpu():
    """Where float32 products are float32."""
    with tf.device("CPU:0"):
        yield


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def softmax(users, items, weights=WEIGHTS, dtype=tf.float32):
    positions = tf.constant(np.concatenate([ITEMS, SAMPLES]))
    return sampled_items_softmax(
        users, items, tf.constant(USERS), positions, tf.constant(EXPECTED), weights, dtype
    )


@pytest.mark.parametrize(("dtype", "tolerance"), [(tf.float32, 1e-4), (tf.bfloat16, 0.03)])
def test_loss_and_gradients(dtype, tolerance):
    users, items = tf.constant(drawn(3, 4)), tf.constant(drawn(5, 4, seed=1))

    def plain():
        """The cross entropy of one row of scores for each pair: its own, then the samples."""
        scores = users @ tf.transpose(items)
        own = tf.gather_nd(scores, np.stack([USERS, ITEMS], axis=1))[:, tf.newaxis]
        others = tf.gather(tf.gather(scores, USERS), SAMPLES, axis=1) - EXPECTED
        labels = np.zeros(len(USERS), np.int32)
        return WEIGHTS * tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels, tf.concat([own, others], axis=1)
        )

    with tf.GradientTape(persistent=True) as tape:
        tape.watch([users, items])
        loss, other = softmax(users, items, tf.constant(WEIGHTS), dtype), tf.reduce_sum(plain())
    np.testing.assert_allclose(loss, other, tolerance)
    for number, operand in enumerate((users, items)):
        found, wanted = (tape.gradient(of, operand, tf.constant(3.0)) for of in (loss, other))
        np.testing.assert_allclose(found, wanted, atol=8 * tolerance, err_msg=number)


def test_of_no_weight_there_is_no_gradient_at_all():
    users, items = tf.constant(drawn(3, 4)), tf.constant(drawn(5, 4, seed=1))
    with tf.GradientTape() as tape:
        tape.watch([users, items])
        loss = softmax(users, items, tf.constant(np.where(USERS == 2, 0, WEIGHTS), tf.float32))
    by_user, by_item = tape.gradient(loss, [users, items])
    assert by_user[:2].numpy().any(axis=1).all() and not by_user[2].numpy().any()
    assert not by_item[2:4].numpy().any()


@pytest.mark.slow
def test_samples_estimate_the_softmax_over_all_items():
    """The mean normalizer over many draws is the sum over all items."""
    counts, scores = np.array([50, 20, 9, 4, 1]), drawn(5)
    sampler, sums = Unigram(counts, 3), []
    for number in range(400):
        ids = sampler.draw(tf.constant([1, number], tf.int64))
        expected = sampler.log_expected(ids)
        sums.append(np.exp(scores[ids.numpy()] - expected.numpy()).sum())
    assert np.mean(sums) == pytest.approx(np.exp(scores).sum(), rel=0.05)
