"""Predictions of a trained loss: log-probabilities, the distribution, the most probable words."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from ..tables.row_reads import gather_unique
from . import stream
from .base import Gather, NormalizedLoss, Predictions


def log_probability(
    loss: NormalizedLoss, hidden_ND: tf.Tensor, targets_N: tf.Tensor, gather: Gather
) -> tf.Tensor:
    """Return the exact log-probability of one given word for each hidden vector, (N,) float32.

    A loss with classes or a tree reads only the rows of these words' classes or paths.

    Args:
        loss: A trained loss.
        hidden_ND: N hidden vectors.
        targets_N: The id of a word for each vector, int32.
        gather: Reads rows of the loss's tables.
    """
    weights_N11 = tf.ones_like(hidden_ND[:, :1, tf.newaxis], tf.float32)
    predictions = Predictions(hidden_ND[:, tf.newaxis], targets_N[:, tf.newaxis], weights_N11)
    rows = gather_unique(loss.exact_lookups(), gather)
    return -tf.add_n([stream.losses(part, gather) for part in loss.exact(predictions, rows)])


def distribution(
    loss: NormalizedLoss, hidden_ND: tf.Tensor, gather: Gather
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield all words in blocks, as ids (M,) and their log-probabilities (N, M) float32.

    A block is computed when it is reached. Ids are in the order of the loss, not ascending.

    Args:
        loss: A trained loss.
        hidden_ND: N hidden vectors.
        gather: Reads rows of the loss's tables.
    """
    for block in loss.word_blocks(hidden_ND, gather):
        yield block.ids_M, block.log_probability()


def top_k(
    loss: NormalizedLoss, hidden_ND: tf.Tensor, k: int, gather: Gather
) -> tuple[np.ndarray, np.ndarray]:
    """Return the k most probable words of each hidden vector, exactly.

    Blocks with the highest bounds are read first. A block is skipped if its bound shows that none
    of its words can be among the k (branch and bound).

    Args:
        loss: A trained loss.
        hidden_ND: N hidden vectors.
        k: The number of words.
        gather: Reads rows of the loss's tables.

    Returns:
        Ids (N, k) int32 and log-probabilities (N, k) float32, the most probable word first, and of
        equally probable words the lower id first. Fewer than k columns if there are fewer words.
    """
    count = int(hidden_ND.shape[0])
    ids_NK = np.zeros((count, 0), np.int32)
    log_p_NK = np.zeros((count, 0), np.float32)
    blocks = sorted(
        loss.word_blocks(hidden_ND, gather), key=lambda block: -block.bound_N.max(initial=-np.inf)
    )
    for block in blocks:
        if log_p_NK.shape[1] == k and (block.bound_N < log_p_NK[:, -1]).all():
            continue
        block_NM = block.log_probability()
        log_p_NK = np.concatenate([log_p_NK, block_NM], axis=1)
        ids_NK = np.concatenate([ids_NK, np.broadcast_to(block.ids_M, block_NM.shape)], axis=1)
        order_NK = np.lexsort((ids_NK, -log_p_NK), axis=1)[:, :k]
        log_p_NK = np.take_along_axis(log_p_NK, order_NK, axis=1)
        ids_NK = np.take_along_axis(ids_NK, order_NK, axis=1)
    return ids_NK, log_p_NK
