"""Recommenders against their formulas in numpy, and what a step leaves alone."""

import numpy as np
import pytest
import tensorflow as tf

from app.input.user_item_pairs import UserItemPairs
from app.losses.sampling import Unigram
from app.losses.user_item_losses import (
    Bpr,
    InBatchSoftmax,
    SampledItems,
    SquaredError,
    inner_products,
    log_expected,
)
from app.models.recommender import Recommender
from app.models.scorers import ItemBiased, MatrixFactorization
from app.optimizers.adam import lazy_adam
from app.tables.device import DeviceTable
from app.training.step import train_step
from app.types import Batch
from tests.reference.batches import loss_and_gradients

USERS, ITEMS, DIM = 7, 9, 4
COUNTS = np.arange(ITEMS, 0, -1)
SCORERS = {
    "mf": MatrixFactorization(DIM),
    "products": ItemBiased(DIM, False, 0.5),
    "cosine": ItemBiased(DIM, True, 0.5),
}
PAIRS = UserItemPairs(
    np.array([0, 1, 1, 2, 2, 2], np.int32),
    np.array([3, 3, 4, 0, 8, 8], np.int32),
    np.array([5, 1, 2, 4, 3, 3], np.float32),
    np.array([1, 2, 1, 0.5, 1, 0], np.float32),
)


def recommender(name, loss, row_l2=0.0):
    expected = tf.Variable(log_expected(COUNTS, len(PAIRS.users)))
    losses = {
        "in_batch_softmax": InBatchSoftmax(expected, temperature=0.5),
        "sampled_items": SampledItems(Unigram(COUNTS, 5), expected, 2, temperature=0.5),
        "bpr": Bpr(negatives=2),
        "squared_error": SquaredError(mean=0.5),
    }
    return Recommender(USERS, ITEMS, SCORERS[name], losses[loss], 1, row_l2)


def batch():
    return Batch(UserItemPairs(*map(tf.constant, PAIRS)), tf.constant([1, 2], tf.int64))


def values(model, seed=0):
    random = np.random.default_rng(seed)
    return {
        name: random.normal(size=(spec.rows, spec.columns)).astype(np.float32)
        for name, spec in model.tables().items()
    }


def score(name, user, item):
    """Of two rows, by the papers' formulas."""
    return {
        "mf": lambda: user[:-1] @ item[:-1] + user[-1] + item[-1],
        "products": lambda: user @ item[:-1] + 0.5 * item[-1],
        "cosine": lambda: (
            user @ item[:-1] / np.linalg.norm(user) / np.linalg.norm(item[:-1]) + 0.5 * item[-1]
        ),
    }[name]()


def all_scores(name, tables):
    return np.array([[score(name, u, i) for i in tables["items"]] for u in tables["users"]])


def plain_loss(name, loss, model, tables):
    scores = all_scores(name, tables)
    own = scores[PAIRS.users, PAIRS.items]
    if loss == "squared_error":
        losses = (own + model.pair_loss.mean - PAIRS.ratings) ** 2
    elif loss == "bpr":
        drawn = model.lookups(batch())["items"].numpy()[6:].reshape(2, 6)
        losses = np.log1p(np.exp(scores[PAIRS.users, drawn] - own)).mean(axis=0)
    elif loss == "sampled_items":
        samples = model.lookups(batch())["items"][len(PAIRS.users) :]
        scores = scores / model.pair_loss.temperature
        expected = 5 * COUNTS**0.75 / (COUNTS**0.75).sum()
        others = (np.exp(scores) / expected)[:, samples.numpy()].sum(axis=1)[PAIRS.users]
        own = scores[PAIRS.users, PAIRS.items]
        losses = np.log(np.exp(own) + others) - own
    else:
        share = np.arange(ITEMS, 0, -1) / (ITEMS * (ITEMS + 1) / 2)
        scores = scores / model.pair_loss.temperature - np.log(1 - (1 - share) ** 6)
        there = np.unique(PAIRS.items)
        total = np.log(np.exp(scores[:, there]).sum(axis=1))
        losses = (total[:, None] - scores)[PAIRS.users, PAIRS.items]
    penalised = {"users": tables["users"], "items": tables["items"]}
    if name in ("products", "cosine"):  # whose bias has where to start
        penalised["items"] = tables["items"][:, :-1]
    squares = [
        (penalised[n][ids] ** 2).sum(axis=1)
        for n, ids in (("users", PAIRS.users), ("items", PAIRS.items))
    ]
    if loss == "bpr":
        squares += [(tables["items"][ids] ** 2).sum(axis=1) for ids in drawn]
    penalty = (sum(squares) * (PAIRS.weights > 0)).sum() * model.row_l2 / 2
    return (PAIRS.weights * losses).sum() + penalty


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        *(("mf", loss) for loss in ("squared_error", "bpr")),
        *((name, "in_batch_softmax") for name in ("products", "cosine")),
        *((name, "sampled_items") for name in ("products", "cosine")),
    ],
)
def test_loss_and_gradients(name, loss):
    model = recommender(name, loss, row_l2=0.3)
    tables = values(model)
    total, examples, dense = loss_and_gradients(model, batch(), tables)
    assert examples == PAIRS.weights.sum()
    np.testing.assert_allclose(total, plain_loss(name, loss, model, tables), 1e-4)
    random = np.random.default_rng(1)
    for table in tables:  # the derivative in a random direction
        direction = random.normal(size=tables[table].shape) * 1e-3
        ahead, behind = (
            plain_loss(name, loss, model, tables | {table: tables[table] + sign * direction})
            for sign in (1, -1)
        )
        np.testing.assert_allclose(
            (direction * dense[table]).sum(), (ahead - behind) / 2, 1e-2, 1e-5
        )


@pytest.mark.parametrize("name", SCORERS)
def test_every_pair_scores_as_in_a_matrix_of_all(name):
    model = recommender(name, "bpr")
    tables = {key: tf.constant(table) for key, table in values(model).items()}
    users = model.scorer.encode_users(tables["users"])
    items = model.scorer.encode_items(tables["items"])
    expected = all_scores(name, values(model))
    np.testing.assert_allclose(users @ tf.transpose(items), expected, 1e-4, 1e-5)
    pairs = inner_products(users, items[:USERS])
    np.testing.assert_allclose(pairs, np.diag(expected), 1e-4, 1e-5)


@pytest.mark.parametrize("loss", ["squared_error", "bpr", "in_batch_softmax", "sampled_items"])
def test_a_row_of_padding_alone_stays_as_it_is(loss):
    model = recommender(
        "cosine" if loss in ("in_batch_softmax", "sampled_items") else "mf", loss, row_l2=0.1
    )
    tables = {
        name: DeviceTable(spec.rows, spec.columns, spec.initial, slots=lazy_adam().slots)
        for name, spec in model.tables().items()
    }
    before = tables["users"].gather(tf.range(USERS)).numpy()
    optimizer, rate = lazy_adam(), tf.constant(0.1)
    for number in (1, 2):
        data = batch().data._replace(weights=tf.constant([1.0, 1, 1, 0, 0, 0]))
        given = Batch(data, tf.constant([1, number], tf.int64))
        train_step(model, tables, optimizer, [given], rate, tf.constant(number, tf.int64))
    moved = (tables["users"].gather(tf.range(USERS)).numpy() != before).any(axis=1)
    np.testing.assert_array_equal(moved, [True, True, *[False] * 5])


@pytest.mark.parametrize("name", ["products", "cosine"])
def test_items_start_as_popular_as_they_are(name):
    model = recommender(name, "in_batch_softmax")
    spec = model.tables()["items"]
    rows = spec.initial((spec.rows, spec.columns))
    expected = log_expected(np.arange(ITEMS, 0, -1), len(PAIRS.users))
    np.testing.assert_array_equal(rows[:, -1], expected)
    some = tf.constant([4, 0, 4])
    np.testing.assert_array_equal(spec.initial.rows(some, spec.columns), tf.gather(rows, some))
