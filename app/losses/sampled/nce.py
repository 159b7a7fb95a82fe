"""Noise-contrastive estimation."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from .sampled import SampledLoss, Scores


class Nce(SampledLoss):
    """Each word to predict is told from K samples by a logistic decision.

    The score of a word less log V is to become the logarithm of its probability: a bias that stays
    as it is, so that rows of 0 begin as the uniform distribution. Less log(K q), where q is the
    word's share of the noise, that says how much more likely the word comes from the text than from
    the noise (Gutmann and Hyvarinen 2010; Mnih and Teh 2012). As in tf.nn.nce_loss, a sample that
    is the word to predict stays, as noise may be that word, too.
    """

    def __init__(self, counts: np.ndarray, columns: int, samples: int, sampler: str):
        super().__init__(counts, columns, samples, sampler)
        self._log_words = np.float32(np.log(len(counts)))

    def losses(self, scores: Scores, weights_GNM: tf.Tensor) -> tf.Tensor:
        """See `SampledLoss`."""
        samples_GNK = scores.samples_GNK - self._log_words
        words_GNM = scores.words_GNM - self._log_words
        noise_GN = tf.reduce_sum(tf.nn.softplus(samples_GNK), axis=2)
        words_GN = tf.reduce_sum(weights_GNM * tf.nn.softplus(-words_GNM), axis=2)
        return words_GN + tf.reduce_sum(weights_GNM, axis=2) * noise_GN

    def priors(self, counts_V: np.ndarray) -> dict[str, np.ndarray]:
        """The logarithm of V times the share of each word."""
        priors = super().priors(counts_V)
        return {name: prior_V + self._log_words for name, prior_V in priors.items()}
