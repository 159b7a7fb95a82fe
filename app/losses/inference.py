"""What a trained loss tells of words: their log-probabilities, the distribution, the likeliest."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from ..tables.row_reads import distinct
from ..types import Rows
from . import stream
from .base import Gather, NormalizedLoss, Predictions


def log_probability(
    loss: NormalizedLoss, hidden_ND: tf.Tensor, targets_N: tf.Tensor, gather: Gather
) -> tf.Tensor:
    """The exact log-probability of a word for each hidden vector, (N,) float32.

    Reads the rows of the words' classes or paths only, if the loss has such.
    """
    predictions = Predictions(
        hidden_ND[:, tf.newaxis], targets_N[:, tf.newaxis], tf.ones_like(hidden_ND[:, :1, None])
    )
    predictions = predictions._replace(weights_GNM=tf.cast(predictions.weights_GNM, tf.float32))
    rows = {}
    for name, ids in loss.exact_lookups().items():
        ids_U, positions_N = distinct(ids)
        rows[name] = Rows(gather(name, ids_U), positions_N)
    return -tf.add_n([stream.losses(part, gather) for part in loss.exact(predictions, rows)])


def distribution(
    loss: NormalizedLoss, hidden_ND: tf.Tensor, gather: Gather
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Blocks of ids (M,) and their log-probabilities (N, M) float32; every word comes once."""
    for block in loss.word_blocks(hidden_ND, gather):
        yield block.ids_M, block.log_probability()


def top_k(
    loss: NormalizedLoss, hidden_ND: tf.Tensor, k: int, gather: Gather
) -> tuple[np.ndarray, np.ndarray]:
    """The k likeliest words: ids (N, k) and log-probabilities, most likely first; exact.

    Looks into the likeliest blocks first, and not into those in which no word can be among the k
    (branch and bound). Fewer than k where there are fewer words; of equals the lower id first.
    """
    count = int(hidden_ND.shape[0])
    ids_NK = np.zeros((count, 0), np.int32)
    found_NK = np.zeros((count, 0), np.float32)
    blocks = sorted(
        loss.word_blocks(hidden_ND, gather), key=lambda block: -block.bound_N.max(initial=-np.inf)
    )
    for block in blocks:
        if found_NK.shape[1] == k and (block.bound_N < found_NK[:, -1]).all():
            continue
        more_NM = block.log_probability()
        found_NK = np.concatenate([found_NK, more_NM], axis=1)
        ids_NK = np.concatenate([ids_NK, np.broadcast_to(block.ids_M, more_NM.shape)], axis=1)
        order_NK = np.lexsort((ids_NK, -found_NK), axis=1)[:, :k]
        found_NK = np.take_along_axis(found_NK, order_NK, axis=1)
        ids_NK = np.take_along_axis(ids_NK, order_NK, axis=1)
    return ids_NK, found_NK
