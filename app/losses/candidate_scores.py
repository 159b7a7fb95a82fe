"""Scores of vectors and words: their dot products."""

from __future__ import annotations

import tensorflow as tf


def pair_scores(hidden_GND: tf.Tensor, words_GMD: tf.Tensor) -> tf.Tensor:
    """The dot product of every vector and every word of a group, (G, N, M)."""
    if hidden_GND.shape[1] == words_GMD.shape[1] == 1:
        # A product of matrices for each single number would cost more than the number.
        return tf.reduce_sum(hidden_GND * words_GMD, axis=2, keepdims=True)
    return tf.matmul(hidden_GND, words_GMD, transpose_b=True)
