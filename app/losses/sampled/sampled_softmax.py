"""The sampled softmax."""

from __future__ import annotations

import tensorflow as tf

from .sampled import SampledLoss, Scores


class SampledSoftmax(SampledLoss):
    """A softmax over the word to predict and the samples (Bengio and Senecal 2008).

    Each score is reduced by the logarithm of how often its word is expected among the samples. So
    the gradient approaches the full softmax's as the number of samples grows (Jean et al. 2015,
    section 3).

    If the word to predict is also sampled, one of its samples is left out, as
    tf.nn.sampled_softmax_loss with remove_accidental_hits does. If all its samples were left out, a
    word would become less probable the more often it is drawn.
    """

    def losses(self, scores: Scores, weights_GNM: tf.Tensor) -> tf.Tensor:
        """Return the weighted softmax loss of each vector, (G, N) float32."""
        samples_GN1 = tf.reduce_logsumexp(scores.samples_GNK, axis=2, keepdims=True)
        margin_GNM = scores.words_GNM - samples_GN1
        # By how much the word itself raises the log-sum-exp of the samples.
        added_GNM = tf.where(scores.drawn_GM[:, tf.newaxis], 0.0, tf.nn.softplus(margin_GNM))
        return tf.reduce_sum(weights_GNM * (added_GNM - margin_GNM), axis=2)
