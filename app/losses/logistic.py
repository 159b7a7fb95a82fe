"""The logistic loss of word2vec, with a gradient that never computes the loss."""

from __future__ import annotations

import tensorflow as tf


def logistic(scores: tf.Tensor, weights: tf.Tensor, observed: bool) -> tf.Tensor:
    """The weighted sum of -log sigmoid(score), or of -log sigmoid(-score) where not `observed`.

    scores: any shape and float dtype. weights: float32, broadcasts to the scores; no gradient flows
    to it. Gives a float32 scalar (Mikolov et al. 2013b, equation 4).

    The gradient, weights (sigmoid(score) - observed), needs no logarithm, so that in a step whose
    loss nobody reads the loss costs nothing: TensorFlow prunes it. softplus takes 4 times as long
    as sigmoid on a CPU.
    """

    @tf.custom_gradient
    def loss(scores: tf.Tensor):
        scores32 = tf.cast(scores, tf.float32)
        value = tf.reduce_sum(weights * tf.nn.softplus(-scores32 if observed else scores32))

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            error = tf.sigmoid(scores32) - 1.0 if observed else tf.sigmoid(scores32)
            return tf.cast(upstream * (weights * error), scores.dtype)

        return value, gradient

    return loss(scores)
