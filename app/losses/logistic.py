"""The logistic loss of word2vec, with a gradient that does not compute the loss."""

from __future__ import annotations

import tensorflow as tf

from ..system.gradients import custom_gradient


def logistic(scores: tf.Tensor, weights: tf.Tensor, observed: bool | tf.Tensor) -> tf.Tensor:
    """Return the weighted sum of the logistic losses of scores (Mikolov et al. 2013b, equation 4).

    The gradient, weights (sigmoid(score) - observed), needs no logarithm. So TensorFlow prunes the
    loss from a step that does not use its value. softplus takes 4 times as long as sigmoid on a
    CPU.

    Args:
        scores: Any shape and float dtype.
        weights: float32, broadcasts to the scores. No gradient flows to it.
        observed: Whether the pairs are from the data, with a loss of -log sigmoid(score). If not,
            they are noise, with a loss of -log sigmoid(-score). A tensor of the shape of the last
            dimension if they differ.

    Returns:
        A float32 scalar.
    """

    @custom_gradient
    def loss(scores: tf.Tensor):
        """Return the weighted sum, with its gradient by the scores."""
        scores32 = tf.cast(scores, tf.float32)
        value = tf.reduce_sum(weights * tf.nn.softplus(tf.where(observed, -scores32, scores32)))

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            error = tf.sigmoid(scores32) - tf.cast(observed, tf.float32)
            return tf.cast(upstream * (weights * error), scores.dtype)

        return value, gradient

    return loss(scores)


def logistic_of_pairs(
    hidden_ND: tf.Tensor, words_ND: tf.Tensor, weights_N1: tf.Tensor
) -> tf.Tensor:
    """Return the logistic loss of observed pairs, each of one vector and one word.

    It is `logistic` of the dot products of the rows.

    Args:
        hidden_ND: The vectors, any float dtype.
        words_ND: The row of each vector's word, of the same dtype.
        weights_N1: The weight of each pair, float32. No gradient flows to it.

    Returns:
        A float32 scalar.
    """

    @custom_gradient
    def loss(hidden_ND: tf.Tensor, words_ND: tf.Tensor):
        """Return the weighted sum, with its gradients by the vectors and by the words."""
        scores_N1 = tf.reduce_sum(hidden_ND * words_ND, axis=1, keepdims=True)
        value = tf.reduce_sum(weights_N1 * tf.nn.softplus(-tf.cast(scores_N1, tf.float32)))
        return value, lambda upstream: _pair_gradients(hidden_ND, words_ND, weights_N1, upstream)

    return loss(hidden_ND, words_ND)


@tf.function(autograph=False, jit_compile=True)  # two passes over (N, D) instead of six
def _pair_gradients(
    hidden_ND: tf.Tensor, words_ND: tf.Tensor, weights_N1: tf.Tensor, upstream: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the gradients of `logistic_of_pairs` by the vectors and by the words, (N, D) each."""
    scores_N1 = tf.reduce_sum(hidden_ND * words_ND, axis=1, keepdims=True)
    chance_N1 = tf.sigmoid(tf.cast(scores_N1, tf.float32))
    error_N1 = tf.cast(upstream * weights_N1 * (chance_N1 - 1.0), hidden_ND.dtype)
    return error_N1 * words_ND, error_N1 * hidden_ND
