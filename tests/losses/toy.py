"""A small trained-looking loss: random tables, hidden vectors and targets, and dense answers."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from app.losses import inference, stream
from app.losses.base import Predictions
from app.tables.device import DeviceTable

DIM, VECTORS = 5, 12


def counts(words):
    """As of Zipf's law."""
    return np.maximum(1000 // np.arange(1, words + 1), 1)


def make_tables(loss, seed=0, slots=None):
    """Its tables, with random rows."""
    random = np.random.default_rng(seed)
    return {
        name: DeviceTable(
            spec.rows,
            spec.columns,
            lambda shape: tf.constant(random.normal(size=shape), tf.float32),
            slots=slots,
        )
        for name, spec in loss.tables().items()
    }


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

    results = [stream.train(part, gather_from(tables), update) for part in parts]
    for name, ids in touched.items():
        assert len(ids) == len(set(ids)), f"a row of {name} is in two blocks"
    total = sum(float(value) for value, _ in results)
    return total, sum(by_hidden.numpy() for _, by_hidden in results), dense, touched
