"""One-vs-all against numpy and dense autodiff."""

import numpy as np
import pytest
import tensorflow as tf

from app.assembly import learning
from app.losses import inference, one_vs_all, stream
from app.losses.base import Predictions
from app.losses.one_vs_all import OneVsAll
from app.settings import ModelConfig
from tests.losses import toy
from tests.losses.toy import DIM, VECTORS

LABELS = 7


def predictions(weighted):
    """Vectors with one to three labels; the last is padding."""
    draw = np.random.default_rng(3)
    targets_NM = np.stack([draw.permutation(LABELS)[:3] for _ in range(VECTORS)])
    weights_NM = draw.uniform(0.5, 2, size=(VECTORS, 3)) if weighted else np.ones((VECTORS, 3))
    weights_NM[::2, 1:] = 0
    weights_NM[-1] = 0
    targets_NM[weights_NM == 0] = 0
    return Predictions(
        toy.hidden()[:, None],
        tf.constant(targets_NM, tf.int32),
        tf.constant(weights_NM[:, None], tf.float32),
    )


def dense(given, rows_CD):
    """The loss and its gradients, from all scores at once."""
    targets_NM, weights_NM = given.targets_GM.numpy(), given.weights_GNM[:, 0].numpy()
    there_NC = np.zeros((VECTORS, LABELS), np.float32)
    for vector, (targets, weights) in enumerate(zip(targets_NM, weights_NM, strict=True)):
        for target, weight in zip(targets, weights, strict=True):
            there_NC[vector, target] += weight
    real_N1 = (weights_NM > 0).any(axis=1, keepdims=True)
    absent_NC = real_N1 & (there_NC == 0)
    with tf.GradientTape() as tape:
        tape.watch((given.hidden_GND, rows_CD))
        scores_NC = tf.matmul(given.hidden_GND[:, 0], rows_CD, transpose_b=True)
        loss = -tf.reduce_sum(
            there_NC * tf.math.log_sigmoid(scores_NC) + absent_NC * tf.math.log_sigmoid(-scores_NC)
        )
    by_hidden, by_rows = tape.gradient(loss, (given.hidden_GND, rows_CD))
    return float(loss), by_hidden[:, 0].numpy(), by_rows.numpy()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("at_once", [1 << 20, 3 * VECTORS])
def test_the_loss_and_its_gradients(monkeypatch, weighted, at_once):
    monkeypatch.setattr(one_vs_all, "_AT_ONCE", at_once)  # blocks of 3 labels
    loss, given = OneVsAll(LABELS, DIM), predictions(weighted)
    tables = toy.make_tables(loss)
    expected = dense(given, tables["output"].gather(tf.range(LABELS)))
    value, by_hidden, by_rows, touched = toy.streamed(loss, given, tables)
    assert sorted(touched["output"]) == [*range(LABELS)]
    np.testing.assert_allclose(value, expected[0], rtol=1e-5)
    np.testing.assert_allclose(by_hidden, expected[1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(by_rows["output"], expected[2], rtol=1e-4, atol=1e-5)
    assert not by_hidden[-1].any()


def test_products_in_bfloat16():
    loss, given = OneVsAll(LABELS, DIM), predictions(weighted=True)
    tables = toy.make_tables(loss)
    expected = dense(given, tables["output"].gather(tf.range(LABELS)))
    given = given._replace(hidden_GND=tf.cast(given.hidden_GND, tf.bfloat16))
    (part,) = loss.loss(given, {})[1]
    value, by_hidden, _ = stream.differentiate(part, toy.gather_from(tables), lambda *_: None)
    assert by_hidden.dtype == tf.bfloat16
    np.testing.assert_allclose(value, expected[0], rtol=0.02)
    np.testing.assert_allclose(tf.cast(by_hidden, tf.float32), expected[1], atol=0.1)


def test_probabilities(monkeypatch):
    monkeypatch.setattr(one_vs_all, "_AT_ONCE", 3 * DIM)
    loss = OneVsAll(LABELS, DIM)
    tables = toy.make_tables(loss)
    found_NC = np.exp(toy.all_log_probabilities(loss, toy.hidden(), tables))
    scores_NC = toy.hidden().numpy() @ tables["output"].gather(tf.range(LABELS)).numpy().T
    np.testing.assert_allclose(found_NC, 1 / (1 + np.exp(-scores_NC)), rtol=1e-5)
    ids_NK, _ = inference.top_k(loss, toy.hidden(), 2, toy.gather_from(tables))
    np.testing.assert_array_equal(ids_NK, np.argsort(-scores_NC)[:, :2])


# With a bias of its prior in each row, a loss gives words their share of the text.


WORDS = 50
COUNTS = toy.counts(WORDS)
SHARES = COUNTS / COUNTS.sum()


def shares_at_first(**flags):
    """Of the words, for a vector that is zeros but for the 1 of the bias."""
    wanted = learning.OutputSpec(COUNTS, toy.DIM, targets=20, seed=1)
    loss = learning.make_loss(ModelConfig(**flags), wanted)
    tables = toy.make_tables(loss)
    priors = loss.priors(COUNTS)
    assert priors.keys() <= tables.keys()
    assert sum(map(len, priors.values())) == sum(tables[name].rows for name in priors)
    for name, table in tables.items():
        if "projection" not in name:
            prior_V = priors.get(name, np.zeros(table.rows, np.float32))
            table.assign(tf.range(table.rows), tf.pad(prior_V[:, None], [[0, 0], [4, 0]]))
    bias_1D = tf.constant([[0.0] * (toy.DIM - 1) + [1.0]])
    return np.exp(toy.all_log_probabilities(loss, bias_1D, tables))[0]


@pytest.mark.parametrize(
    "flags",
    [
        {"loss": "softmax"},
        {"loss": "sampled_softmax"},
        {"loss": "nce"},
        {"loss": "class_softmax", "classes": 8},
        {"loss": "class_softmax", "classes": 12, "class_levels": 3},
    ],
    ids=lambda flags: "-".join(map(str, flags.values())),
)
def test_words_have_their_share(flags):
    np.testing.assert_allclose(shares_at_first(**flags), SHARES, rtol=1e-4)


def test_words_of_a_tail_share_what_their_cluster_has():
    found = shares_at_first(loss="adaptive_softmax", cutoffs="10,30")
    np.testing.assert_allclose(found[:10], SHARES[:10], rtol=1e-4)
    np.testing.assert_allclose(found[10:30], SHARES[10:30].mean(), rtol=1e-4)
    np.testing.assert_allclose(found[30:], SHARES[30:].mean(), rtol=1e-4)


def test_a_tree_comes_near_without():
    found = shares_at_first(loss="hierarchical_softmax")
    assert 0.7 < (SHARES * np.log(SHARES)).sum() / (SHARES * np.log(found)).sum() <= 1
