"""Noise-contrastive estimation."""

from __future__ import annotations

import tensorflow as tf

from app.losses.sampled import Sampled, Scores


class Nce(Sampled):
    """Each word to predict is told from K samples by a logistic decision.

    The score of a word less log(K q), where q is its share of the noise, is the logarithm of how
    much more often it comes from the text than from the noise (Gutmann and Hyvarinen 2010; Mnih and
    Teh 2012, equation 9), so that exp(score) becomes the probability itself. As tf.nn.nce_loss: a
    sample that is the word to predict stays, as noise may be that word, too.
    """

    def losses(self, scores: Scores, weights_GNM: tf.Tensor) -> tf.Tensor:
        """See `Sampled`."""
        noise_GN = tf.reduce_sum(tf.nn.softplus(scores.samples_GNK), axis=2)
        words_GN = tf.reduce_sum(weights_GNM * tf.nn.softplus(-scores.words_GNM), axis=2)
        return words_GN + tf.reduce_sum(weights_GNM, axis=2) * noise_GN
