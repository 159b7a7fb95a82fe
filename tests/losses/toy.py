"""A small trained-looking loss: random tables, hidden vectors and targets, and dense answers."""

import numpy as np
import tensorflow as tf

from app.losses import inference, stream
from app.losses.base import Predictions
from tests.reference.tables import random_tables

DIM, VECTORS = 5, 12


def counts(words):
    """As of Zipf's law."""
    return np.maximum(1000 // np.arange(1, words + 1), 1)


def make_tables(loss, seed=0, slots=None):
    """Its tables, with random rows."""
    return random_tables(loss.tables(), slots, seed)


def gather_from(tables):
    return lambda name, ids_U: tables[name].gather(ids_U)


def hidden(seed=1, count=VECTORS):
    return tf.constant(np.random.default_rng(seed).normal(size=(count, DIM)), tf.float32)


def targets(words, seed=2, count=VECTORS):
    return tf.constant(np.random.default_rng(seed).integers(words, size=count), tf.int32)


def singly(hidden_ND, targets_N, weights_N=None):
    """Predictions of one word by each vector."""
    weights_N = tf.ones(targets_N.shape) if weights_N is None else weights_N
    return Predictions(hidden_ND[:, None], targets_N[:, None], weights_N[:, None, None])


def all_log_probabilities(loss, hidden_ND, tables):
    """Of every word for every vector, (N, V), from the blocks of the distribution."""
    blocks = list(inference.distribution(loss, hidden_ND, gather_from(tables)))
    ids_V = np.concatenate([ids_M for ids_M, _ in blocks])
    assert sorted(ids_V) == list(range(len(ids_V))), "every word once"
    return np.concatenate([found_NM for _, found_NM in blocks], axis=1)[:, np.argsort(ids_V)]


def streamed(loss, predictions, tables):
    """The loss, its gradient by the hidden vectors, and by every table as a dense array.

    Of losses whose rows are all streamed. Asserts that no row is updated twice.
    """
    _, parts = loss.loss(predictions, {})
    dense = {name: np.zeros(table.values.shape, np.float32) for name, table in tables.items()}
    touched = {name: [] for name in tables}

    def update(name, ids_U, rows_UD, gradients_UD):
        touched[name] += ids_U.numpy().tolist()
        dense[name][ids_U.numpy()] = gradients_UD.numpy()

    results = [stream.differentiate(part, gather_from(tables), update) for part in parts]
    for name, ids in touched.items():
        assert len(ids) == len(set(ids)), f"a row of {name} is in two blocks"
    total = sum(float(value) for value, *_ in results)
    return total, sum(by_hidden.numpy() for _, by_hidden, _ in results), dense, touched


def assert_dense(loss, tables, predictions, dense, tolerance=1e-5):
    """Assert that a streamed loss and its gradients are those of all log-probabilities.

    Args:
        dense: From the tables by name and hidden vectors (N, D) to log P of all words, (N, V).

    Returns:
        The ids of the rows that were updated, by name of the table.
    """
    hidden_GND, targets_GM, weights_GNM, *_ = predictions
    values = {name: tf.constant(table.values) for name, table in tables.items()}
    with tf.GradientTape() as tape:
        tape.watch((hidden_GND, values))
        log_NV = dense(values, tf.reshape(hidden_GND, (-1, hidden_GND.shape[2])))
        log_GNV = tf.reshape(log_NV, (*hidden_GND.shape[:2], -1))
        log_GNM = tf.gather(log_GNV, targets_GM, axis=2, batch_dims=1)
        expected = -tf.reduce_sum(weights_GNM * log_GNM)
    dense_hidden, dense_rows = tape.gradient(expected, (hidden_GND, values))
    total, by_hidden, by_rows, touched = streamed(loss, predictions, tables)
    np.testing.assert_allclose(total, expected, rtol=1e-5)
    near = {"rtol": 1e-4, "atol": tolerance}
    np.testing.assert_allclose(by_hidden, tf.reshape(dense_hidden, by_hidden.shape), **near)
    for name in tables:
        np.testing.assert_allclose(by_rows[name], dense_rows[name], **near)
        untouched = sorted(set(range(len(by_rows[name]))) - set(touched[name]))
        assert (np.abs(dense_rows[name].numpy()[untouched]) <= 1e-7).all()
    return touched


def groups(words, columns=DIM):
    """Groups of 4 vectors and 6 words; their pairs as single predictions; the vector of a pair."""
    random = np.random.default_rng(0)
    hidden_GND = tf.constant(random.normal(size=(3, 4, columns)), tf.float32)
    targets_GM = tf.constant(random.integers(words, size=(3, 6)), tf.int32)
    weights_GNM = random.integers(3, size=(3, 4, 6)).astype(np.float32)
    g, n, m = np.nonzero(weights_GNM)
    singles = singly(
        tf.gather_nd(hidden_GND, np.stack([g, n], 1)),
        tf.gather_nd(targets_GM, np.stack([g, m], 1)),
        tf.constant(weights_GNM[g, n, m]),
    )
    return Predictions(hidden_GND, targets_GM, tf.constant(weights_GNM)), singles, g * 4 + n


def summed(values_PD, owners_P, count):
    """The sum of the values of each owner."""
    sums = np.zeros((count, values_PD.shape[1]), np.float32)
    np.add.at(sums, owners_P, values_PD)
    return sums


def assert_pairs(loss, tables, words):
    """Assert that groups have the streamed loss and the gradients of all their pairs."""
    predictions, singles, owners_P = groups(words)
    total, by_hidden, by_rows, _ = streamed(loss, predictions, tables)
    expected, single_hidden, expected_rows, _ = streamed(loss, singles, tables)
    np.testing.assert_allclose(total, expected, rtol=1e-5)
    np.testing.assert_allclose(by_hidden, summed(single_hidden, owners_P, 12), atol=1e-5)
    for name in tables:
        np.testing.assert_allclose(by_rows[name], expected_rows[name], atol=1e-5)


def assert_top_k(loss, tables, hidden_ND, k):
    """Assert that the most probable words are those of the sorted distribution."""
    ids_NK, found_NK = inference.top_k(loss, hidden_ND, k, gather_from(tables))
    all_NV = all_log_probabilities(loss, hidden_ND, tables)
    np.testing.assert_array_equal(ids_NK, np.argsort(-all_NV, axis=1, kind="stable")[:, :k])
    np.testing.assert_allclose(found_NK, -np.sort(-all_NV, axis=1)[:, :k], rtol=1e-6)


def assert_nothing_is_learned(loss, tables, words):
    """Assert that vectors without weight have neither a loss nor gradients."""
    predictions = singly(hidden(), targets(words), tf.zeros(VECTORS))
    total, by_hidden, by_rows, _ = streamed(loss, predictions, tables)
    assert total == 0 and not by_hidden.any()
    assert not any(gradient.any() for gradient in by_rows.values())
