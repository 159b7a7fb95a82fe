"""Sampled softmax."""

from __future__ import annotations

import tensorflow as tf

from .sampled import SampledLoss, Scores


class SampledSoftmax(SampledLoss):
    """A softmax over the word to predict and the samples (Bengio and Senecal 2008).

    The logarithm of how often a word is expected among the samples is subtracted from its score, so
    that the gradient comes to that of the full softmax as samples become more (Jean et al. 2015,
    section 3). If the word to predict is one of the samples, one of it is left out: what
    tf.nn.sampled_softmax_loss with remove_accidental_hits does. To leave out all of a word that
    came several times would make it the less probable the more there are.
    """

    def losses(self, scores: Scores, weights_GNM: tf.Tensor) -> tf.Tensor:
        """See `SampledLoss`."""
        samples_GN1 = tf.reduce_logsumexp(scores.samples_GNK, axis=2, keepdims=True)
        above_GNM = scores.words_GNM - samples_GN1
        # The logarithm of the sum over the samples and the word, less that over the samples.
        more_GNM = tf.where(scores.drawn_GM[:, tf.newaxis], 0.0, tf.nn.softplus(above_GNM))
        return tf.reduce_sum(weights_GNM * (more_GNM - above_GNM), axis=2)
