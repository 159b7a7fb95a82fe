"""Distributions from which the K samples of a step are drawn.

Words are drawn with replacement. The samples of one step are spread evenly over the distribution
(see `losses.sampling.draw_stratified`), so word w of probability q(w) is expected K q(w) times.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from ...tables.variable import PreparedValues
from ...types import HOST
from .. import sampling


class LogUniform:
    """The distribution q(id) = log(1 + 1 / (id + 1)) / log(V + 1), which is close to Zipf's law.

    It is the distribution of TensorFlow's `log_uniform_candidate_sampler`, and takes no memory.

    Args:
        counts: (V,) occurrences of the words, descending; only their number is used.
        samples: The number of samples of a step, K.
    """

    def __init__(self, counts: np.ndarray, samples: int):
        self._words, self._samples = len(counts), samples

    def draw(self, seed: tf.Tensor) -> tf.Tensor:
        """Draw the samples of a step, ascending, with repeats, (K,) int32.

        The same seed gives the same words on every device.

        Args:
            seed: (2,) integers; the draw is a function of it.
        """
        points_K = sampling.draw_strata(self._samples, seed)
        # The inverse of the cumulative distribution, which is log(id + 2) / log(V + 1) up to an id.
        ids_K = tf.cast(tf.exp(points_K * np.log(self._words + 1)), tf.int32) - 1
        return tf.minimum(ids_K, self._words - 1)  # the last point may round up

    def log_expected(self, ids: tf.Tensor) -> tf.Tensor:
        """Return the logarithm of how often each id is expected in a step, float32.

        Args:
            ids: Integer ids of any shape.
        """
        share = tf.math.log1p(1 / (tf.cast(ids, tf.float32) + 1))
        return tf.math.log(share * np.float32(self._samples / np.log(self._words + 1)))


class Unigram:
    """The distribution in proportion to count ** 0.75 (Mikolov et al. 2013b, section 2.2).

    A count below 1 is taken as 1. A word that is never drawn would never be made less probable.

    Args:
        counts: (V,) occurrences of the words.
        samples: The number of samples of a step, K.
    """

    def __init__(self, counts: np.ndarray, samples: int):
        cumulative_V = sampling.cumulative_distribution(np.maximum(counts, 1), 0.75)
        self._cumulative_V = PreparedValues(cumulative_V)
        self._samples = samples

    def draw(self, seed: tf.Tensor) -> tf.Tensor:
        """Draw the samples of a step; see `LogUniform.draw`."""
        return sampling.draw_stratified(self._cumulative_V.read(), 1, self._samples, seed)[0]

    def log_expected(self, ids: tf.Tensor) -> tf.Tensor:
        """Return the logarithm of how often each id is expected; see `LogUniform.log_expected`."""
        with tf.device(HOST):  # with the distribution
            cumulative_V = self._cumulative_V.read()
            before = tf.gather(cumulative_V, tf.maximum(ids - 1, 0))
            share = tf.gather(cumulative_V, ids) - tf.where(ids > 0, before, 0.0)
            return tf.cast(tf.math.log(share * self._samples), tf.float32)


SAMPLERS: dict[str, type[LogUniform] | type[Unigram]] = {
    "log_uniform": LogUniform,
    "unigram": Unigram,
}
