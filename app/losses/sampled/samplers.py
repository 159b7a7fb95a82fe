"""The distributions from which the samples of a step are drawn, and how often a word is expected.

A sampler is made from counts, (V,) by descending count, and the number of samples, K.
`draw(seed)` gives ids (K,) int32, `log_expected(ids)` the logarithm of K q(id), float32: words are
drawn with replacement, and those of one step evenly over the distribution (see
`losses.sampling.draw_stratified`), which leaves the expectation as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import tensorflow as tf

from ...types import HOST
from .. import sampling


class Sampler(Protocol):
    """Draws words, the same for the same seed, on any device."""

    def draw(self, seed: tf.Tensor) -> tf.Tensor:
        """The samples of a step, (K,) int32. seed: (2,) integers."""
        ...

    def log_expected(self, ids: tf.Tensor) -> tf.Tensor:
        """The logarithm of how often each of the ids is expected in a step, float32."""
        ...


class LogUniform:
    """q(id) = log(1 + 1 / (id + 1)) / log(V + 1), about Zipf's law; takes no memory.

    As TensorFlow's `log_uniform_candidate_sampler`.
    """

    def __init__(self, counts: np.ndarray, samples: int):
        self._words, self._samples = len(counts), samples

    def draw(self, seed: tf.Tensor) -> tf.Tensor:
        """See `Sampler`."""
        places_K = sampling.draw_strata(self._samples, seed)
        # The inverse of the cumulative distribution, log(id + 2) / log(V + 1) after an id.
        ids_K = tf.cast(tf.exp(places_K * np.log(self._words + 1)), tf.int32) - 1
        return tf.minimum(ids_K, self._words - 1)  # the last of them may round up

    def log_expected(self, ids: tf.Tensor) -> tf.Tensor:
        """See `Sampler`."""
        share = tf.math.log1p(1 / (tf.cast(ids, tf.float32) + 1))
        return tf.math.log(share * np.float32(self._samples / np.log(self._words + 1)))


class Unigram:
    """q(id) in proportion to count ** 0.75, as word2vec's (Mikolov et al. 2013b, section 2.2).

    A count below 1 is taken as 1, as what is never drawn could be made as probable as one likes.
    """

    def __init__(self, counts: np.ndarray, samples: int):
        # A variable, as a constant of a large vocabulary would not fit the graph's 2 GB.
        cumulative_V = sampling.cumulative_distribution(np.maximum(counts, 1), 0.75)
        with tf.device(HOST):  # where ids are drawn
            self._cumulative_V = tf.Variable(cumulative_V, trainable=False)
        self._samples = samples

    def draw(self, seed: tf.Tensor) -> tf.Tensor:
        """See `Sampler`."""
        return sampling.draw_stratified(self._cumulative_V, 1, self._samples, seed)[0]

    def log_expected(self, ids: tf.Tensor) -> tf.Tensor:
        """See `Sampler`."""
        with tf.device(HOST):  # with the distribution
            before = tf.gather(self._cumulative_V, tf.maximum(ids - 1, 0))
            share = tf.gather(self._cumulative_V, ids) - tf.where(ids > 0, before, 0.0)
            return tf.cast(tf.math.log(share * self._samples), tf.float32)


SAMPLERS: dict[str, Callable[[np.ndarray, int], Sampler]] = {
    "log_uniform": LogUniform,
    "unigram": Unigram,
}
