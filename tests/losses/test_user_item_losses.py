"""Losses of pairs against numpy."""

import re
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from app.losses.sampling import Unigram
from app.losses.user_item_losses import (
    Bpr,
    SquaredError,
    UserItemBatch,
    UserItemLoss,
    in_batch_softmax,
    log_expected,
    sampled_items_softmax,
)
from app.types import Rows

WEIGHTS = np.array([1, 0.5, 2, 0, 1, 1], np.float32)


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def batch(items, ratings=WEIGHTS):
    """Pairs whose score is the one number of the item's row."""
    rows = Rows(items[:, tf.newaxis], tf.range(len(items)))
    return UserItemBatch(
        *(tf.ones((6, 1)), tf.ones((1, 1)), tf.zeros(6, tf.int32), rows),
        *(tf.constant(ratings), tf.constant(WEIGHTS)),
        encode=lambda rows_ND: rows_ND,
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


DISLIKED = np.array([1, -0.5, 2, 0, -1, 1], np.float32)  # weights, negative for disliked items


def test_bpr_of_disliked_items():
    scores, negatives = drawn(6), drawn(6, 3, seed=1)
    pairs = batch(tf.constant(np.concatenate([scores, *negatives.T])))
    loss = Bpr(3, has_disliked=True).loss(pairs._replace(weights_B=tf.constant(DISLIKED)))
    better = np.sign(DISLIKED)[:, None] * (scores[:, None] - negatives)
    expected = (np.abs(DISLIKED) * np.log1p(np.exp(-better)).mean(axis=1)).sum()
    np.testing.assert_allclose(loss, expected, 1e-5)


def with_disliked(liked, odds):
    """The losses of pairs: -log P of liked items, and of disliked ones by their odds."""
    return tf.where(DISLIKED < 0, -DISLIKED * tf.nn.softplus(odds), DISLIKED * liked)


def check_gradients(operands, loss, plain):
    """A loss and its gradients are those of a plain one."""
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(operands)
        found, expected = loss(), tf.reduce_sum(plain())
    np.testing.assert_allclose(found, expected, 1e-4)
    for operand in operands:
        pair = (tape.gradient(of, operand, tf.constant(3.0)) for of in (found, expected))
        np.testing.assert_allclose(*pair, atol=1e-3)


def test_disliked_items_of_the_softmax_in_the_batch():
    users, items = tf.constant(drawn(6, 4)), tf.constant(drawn(6, 4, seed=1))
    expected = np.log([0.9, 0.5, 0.2, 0.1, 1, 1]).astype(np.float32)
    expected[4:] = np.inf

    def plain():
        scores = (users @ tf.transpose(items) - expected)[:, :4]
        log_p = tf.gather(tf.nn.log_softmax(scores), PLACES, batch_dims=1)
        return with_disliked(-log_p, log_p + np.log(4))

    how = map(tf.constant, (expected, PLACES, DISLIKED))
    args = (*how, tf.float32, True)
    check_gradients([users, items], lambda: in_batch_softmax(users, items, *args), plain)


def test_disliked_items_of_the_softmax_of_samples():
    users, items = tf.constant(drawn(3, 4)), tf.constant(drawn(5, 4, seed=1))

    def plain():
        scores = users @ tf.transpose(items)
        own = tf.gather_nd(scores, np.stack([USERS, ITEMS], axis=1))
        others = tf.gather(tf.gather(scores, USERS), SAMPLES, axis=1) - EXPECTED
        log_sum, total = tf.reduce_logsumexp(others, axis=1), np.exp(-EXPECTED).sum()
        return with_disliked(tf.nn.softplus(log_sum - own), own - log_sum + np.log(total))

    positions = tf.constant(np.concatenate([ITEMS, SAMPLES]))
    args = tf.constant(USERS), positions, tf.constant(EXPECTED), tf.constant(DISLIKED)
    check_gradients(
        [users, items],
        lambda: sampled_items_softmax(users, items, *args, tf.float32, True),
        plain,
    )


def test_only_squared_error_predicts_ratings():
    assert SquaredError(3.5).predicts_ratings and SquaredError(3.5).mean == 3.5
    assert not Bpr(1).predicts_ratings and Bpr(1).mean == UserItemLoss.mean == 0


PLACES = np.array([0, 1, 0, 2, 3, 1], np.int32)  # items that come twice, and one of weight 0


@pytest.mark.parametrize(("dtype", "tolerance"), [(tf.float32, 1e-4), (tf.bfloat16, 0.03)])
def test_loss_and_gradients_of_the_softmax_in_the_batch(dtype, tolerance):
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


def test_of_no_weight_there_is_no_gradient_at_all_of_the_softmax_in_the_batch():
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


USERS = np.array([0, 0, 1, 2, 2, 1], np.int32)
ITEMS = np.array([0, 1, 0, 2, 3, 1], np.int32)  # positions of the items of pairs
SAMPLES = np.array([4, 1, 4, 0], np.int32)  # one drawn twice, two that pairs have as well
EXPECTED = np.log([0.9, 0.5, 2.0, 0.1]).astype(np.float32)


def softmax(users, items, weights=WEIGHTS, dtype=tf.float32):
    positions = tf.constant(np.concatenate([ITEMS, SAMPLES]))
    return sampled_items_softmax(
        users, items, tf.constant(USERS), positions, tf.constant(EXPECTED), weights, dtype
    )


@pytest.mark.parametrize(("dtype", "tolerance"), [(tf.float32, 1e-4), (tf.bfloat16, 0.03)])
def test_loss_and_gradients_of_the_softmax_of_samples(dtype, tolerance):
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


def test_of_no_weight_there_is_no_gradient_at_all_of_the_softmax_of_samples():
    users, items = tf.constant(drawn(3, 4)), tf.constant(drawn(5, 4, seed=1))
    with tf.GradientTape() as tape:
        tape.watch([users, items])
        loss = softmax(users, items, tf.constant(np.where(USERS == 2, 0, WEIGHTS), tf.float32))
    by_user, by_item = tape.gradient(loss, [users, items])
    assert by_user[:2].numpy().any(axis=1).all() and not by_user[2].numpy().any()
    assert not by_item[2:4].numpy().any()


# Of these, XLA makes no kernel of their own beside a product or a sum of rows.
FUSED = {"broadcast", "subtract", "exponential", "divide", "convert"}


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
@pytest.mark.parametrize("samples", [0, 24])
def test_scores_are_written_by_one_product_and_read_as_seldom_as_xla_can(samples, dtype):
    """For an H100 these are five kernels: a product, the exponentials of rows, two products.

    XLA finds maximum, sum and exponentials of a softmax in one kernel, and of samples in two, as
    the sums are needed by themselves.
    """
    count, weights = samples or 32, tf.ones(64)
    places = tf.constant([*range(32), *range(32), *range(samples)], tf.int32)
    log_expected_C = tf.zeros(count)

    @tf.function(jit_compile=True, autograph=False)
    def gradients(users_BE, items_CE):
        with tf.GradientTape() as tape:
            tape.watch([users_BE, items_CE])
            if samples:
                own = tf.range(64), places, log_expected_C, weights
                loss = sampled_items_softmax(users_BE, items_CE, *own, dtype)
            else:
                own = log_expected_C, places, weights
                loss = in_batch_softmax(users_BE, items_CE, *own, dtype)
        return tape.gradient(loss, [users_BE, items_CE])

    arguments = tf.constant(drawn(64, 5)), tf.constant(drawn(32, 5))
    lowered = gradients.experimental_get_compiler_ir(*arguments)(stage="hlo")
    scores = rf"\[64,{count}\]"
    made = re.findall(rf"= (\w+){scores}\S* ([\w-]+)\(([^)]*)\)(.*)", lowered)
    assert all(operation != "transpose" or "={0,1}" in rest for _, operation, _, rest in made)
    written = Counter(operation for _, operation, *_ in made)
    assert written.pop("dot") == 1 and written.keys() <= FUSED | {"transpose"}
    reads = re.findall(rf"= (?!\w+{scores})\S+ ([\w-]+)\([^)]*\w{scores}", lowered)
    expected = {"reduce": 1, "dot": 3} if samples else {"reduce": 2, "dot": 2, "gather": 1}
    assert Counter(reads) == expected, "the gather is of the loss, which few steps need"
    products = re.findall(rf" dot\((\w+){scores}|= (\w+){scores}\S* dot\(", lowered)
    sums = Counter("".join(pair) for pair in products)
    name = {tf.float32: "f32", tf.bfloat16: "bf16"}[dtype]
    assert sums[name] >= 3 and sums.total() - sums[name] <= bool(samples), sums


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
