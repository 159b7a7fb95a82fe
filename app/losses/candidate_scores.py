"""Scores of vectors and words, which are dot products."""

from __future__ import annotations

import tensorflow as tf


def score_words(hidden_GND: tf.Tensor, words_GMD: tf.Tensor) -> tf.Tensor:
    """Return the dot product of every vector and every word of its group, (G, N, M).

    Args:
        hidden_GND: The N vectors of each group.
        words_GMD: The rows of the M words of each group, of the same dtype.
    """
    if hidden_GND.shape[1] == words_GMD.shape[1] == 1:
        # A matrix product for each single score costs more than the score.
        return tf.reduce_sum(hidden_GND * words_GMD, axis=2, keepdims=True)
    return tf.matmul(hidden_GND, words_GMD, transpose_b=True)
