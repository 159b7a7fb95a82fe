"""Noise-contrastive estimation."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from .sampled import SampledLoss, Scores


class Nce(SampledLoss):
    """A loss that tells the word to predict from K samples of noise by logistic regression.

    A word's log-probability is taken to be its score less log V. This constant makes rows of 0 the
    uniform distribution. The logit that a word comes from the text and not from the noise is its
    log-probability less log(K q), where q is the word's share of the noise (Gutmann and Hyvarinen
    2010; Mnih and Teh 2012). A sample that is the word to predict is kept, as in tf.nn.nce_loss.

    Args:
        counts: (V,) occurrences of the words, descending.
        columns: The columns of a vector, D.
        samples: The number of samples of a step, K.
        sampler: The distribution of the noise, a key of `losses.sampled.samplers.SAMPLERS`.
    """

    def __init__(self, counts: np.ndarray, columns: int, samples: int, sampler: str):
        super().__init__(counts, columns, samples, sampler)
        self._log_words = np.float32(np.log(len(counts)))

    def losses(self, scores: Scores, weights_GNM: tf.Tensor) -> tf.Tensor:
        """Return the logistic loss of each vector, weighted, (G, N) float32.

        A vector's samples count by the sum of its weights.
        """
        samples_GNK = scores.samples_GNK - self._log_words
        words_GNM = scores.words_GNM - self._log_words
        noise_GN = tf.reduce_sum(tf.nn.softplus(samples_GNK), axis=2)
        words_GN = tf.reduce_sum(weights_GNM * tf.nn.softplus(-words_GNM), axis=2)
        return words_GN + tf.reduce_sum(weights_GNM, axis=2) * noise_GN

    def priors(self, counts_V: np.ndarray) -> dict[str, np.ndarray]:
        """Return the logarithm of V times the share of the text of each word."""
        priors = super().priors(counts_V)
        return {name: prior_V + self._log_words for name, prior_V in priors.items()}
