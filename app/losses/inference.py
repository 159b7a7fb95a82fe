"""Predictions of a trained loss: log-probabilities, the distribution, the most probable words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ..system.loops import loop
from . import stream
from .base import Gather, NormalizedLoss, Predictions, WordSegments

_NO_WORD = 2**31 - 1  # the id where fewer than k words were found


def log_probability(
    loss: NormalizedLoss, hidden_ND: tf.Tensor, targets_N: tf.Tensor, gather: Gather
) -> tf.Tensor:
    """Return the exact log-probability of one given word for each hidden vector, (N,) float32.

    A loss with classes or a tree reads only the rows of these words' classes or paths.

    Args:
        targets_N: The id of a word for each vector, int32.
    """
    weights_N11 = tf.ones_like(hidden_ND[:, :1, tf.newaxis], tf.float32)
    predictions = Predictions(hidden_ND[:, tf.newaxis], targets_N[:, tf.newaxis], weights_N11)
    return -tf.add_n([stream.losses(part, gather) for part in loss.exact(predictions, gather)])


def distribution(
    loss: NormalizedLoss, hidden_ND: tf.Tensor, gather: Gather
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield all words in blocks, as ids (M,) and their log-probabilities (N, M) float32.

    A block is computed when it is reached. Ids are in the order of the loss, not ascending.
    """
    for segments in loss.word_segments(hidden_ND, gather):
        for segment in range(segments.bounds_NG.shape[1]):
            count, words = segments.blocks(segment)
            for block in range(int(count)):
                ids_M, log_p_NM = words(block)
                yield ids_M.numpy(), log_p_NM.numpy()


def log_probabilities(
    loss: NormalizedLoss, hidden_ND: tf.Tensor, gather: Gather, words: int
) -> tf.Tensor:
    """Return the log-probabilities of all words, (N, V) float32, by id; also in a graph.

    Args:
        words: The number of words, V.
    """
    log_p_VN = tf.zeros([words, tf.shape(hidden_ND)[0]])
    for segments in loss.word_segments(hidden_ND, gather):

        def visit(segment: tf.Tensor, *log_p: tf.Tensor, segments: WordSegments = segments) -> Any:
            """Write the log-probabilities of a segment's words."""
            count, block_of = segments.blocks(segment)

            def write(block: tf.Tensor, so_far_VN: tf.Tensor) -> list[tf.Tensor]:
                ids_M, log_p_NM = block_of(block)
                updates = ids_M[:, tf.newaxis], tf.transpose(log_p_NM)
                return [tf.tensor_scatter_nd_update(so_far_VN, *updates)]

            return loop(tf.convert_to_tensor(count), write, log_p)

        (log_p_VN,) = loop(tf.shape(segments.bounds_NG)[1], visit, [log_p_VN])
    return tf.transpose(log_p_VN)


def top_k(
    loss: NormalizedLoss, hidden_ND: tf.Tensor, k: int, gather: Gather
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the k most probable words of each hidden vector, exactly; also in a graph.

    Segments with the highest bounds are read first. A segment is skipped if its bound shows that
    none of its words can be among the k (branch and bound).

    Returns:
        Ids (N, k) int32 and log-probabilities (N, k) float32, the most probable word first, and of
        equally probable words the lower id first. Fewer than k columns if there are fewer words.
    """
    count = tf.shape(hidden_ND)[0]
    best: Sequence[tf.Tensor] = [tf.fill([count, k], _NO_WORD), tf.fill([count, k], -math.inf)]
    for segments in loss.word_segments(hidden_ND, gather):
        best = _search(segments, best)
    ids_NK, log_p_NK = best
    words = tf.reduce_sum(tf.cast(ids_NK < _NO_WORD, tf.int32), axis=1)
    found = tf.maximum(tf.reduce_max(words), 0)  # there may be no vector
    return ids_NK[:, :found], log_p_NK[:, :found]


def _search(segments: WordSegments, best: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
    """Return the ids and log-probabilities (N, k) of the best words so far and in some segments."""
    greatest_G = tf.reduce_max(segments.bounds_NG, axis=0)
    order_G = tf.argsort(-greatest_G)

    def goes_on(position: tf.Tensor, _: tf.Tensor, log_p_NK: tf.Tensor) -> tf.Tensor:
        """Return whether a segment at this position of the order, or after it, can be needed."""
        segment = order_G[tf.minimum(position, tf.size(order_G) - 1)]  # of the last, after it
        can_have = ~(greatest_G[segment] < tf.reduce_min(log_p_NK[:, -1]))
        return (position < tf.size(order_G)) & can_have

    def visit(position: tf.Tensor, *best: tf.Tensor) -> Sequence[tf.Tensor]:
        """Search one segment, if it can have a word that is better than one of the k so far."""
        segment = order_G[position]
        can_have_N = ~(tf.gather(segments.bounds_NG, segment, axis=1) < best[1][:, -1])

        def search() -> Sequence[tf.Tensor]:
            count, words = segments.blocks(segment)
            return loop(count, lambda block, *best: _merge(best, *words(block)), best)

        return (position + 1, *tf.cond(tf.reduce_any(can_have_N), search, lambda: list(best)))

    start = tf.constant(0)
    return tf.while_loop(goes_on, visit, (start, *best), parallel_iterations=1)[1:]


def _merge(best: Sequence[tf.Tensor], ids_M: tf.Tensor, log_p_NM: tf.Tensor) -> Sequence[tf.Tensor]:
    """Return the best k of k words and a block of words, of equal ones those of lower ids."""
    ids_NK, log_p_NK = best
    k = ids_NK.shape[1]
    own = tf.math.top_k(log_p_NM, tf.minimum(k, tf.size(ids_M)))
    ids = tf.concat([ids_NK, tf.gather(ids_M, own.indices)], axis=1)
    log_p = tf.concat([log_p_NK, own.values], axis=1)
    by_id = tf.argsort(ids, axis=1, stable=True)
    ids, log_p = (tf.gather(each, by_id, batch_dims=1) for each in (ids, log_p))
    top = tf.math.top_k(log_p, k)  # of equal values the first
    merged = [tf.gather(ids, top.indices, batch_dims=1), top.values]
    for after, before in zip(merged, (ids_NK, log_p_NK), strict=True):
        after.set_shape(before.shape)
    return merged
