"""Stratified random draws of samples, and the distributions to draw from."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from ..system.xla import under_xla, uniform_fractions
from ..tables.device import PreparedValues
from ..types import HOST

_BELOW_1 = float(np.nextafter(1.0, 0.0))


def cumulative_distribution(counts: np.ndarray, power: float) -> np.ndarray:
    """Return the cumulative distribution over ids in proportion to counts ** power.

    Args:
        counts: (V,) occurrences. An id with a count of 0 has the probability 0.
        power: 0.75 is word2vec's (Mikolov et al. 2013b, section 2.2).

    Returns:
        The probability of all ids up to each id, (V,) float64; the last is 1. In float32 the shares
        of the rarest of ten million ids would round to 0.
    """
    counts = np.asarray(counts, np.float64)
    mass = np.cumsum(np.power(counts, power, out=np.zeros_like(counts), where=counts > 0))
    return mass / mass[-1]


def draw_stratified(
    cumulative_V: tf.Tensor, pools: int, samples: int, seed: tf.Tensor
) -> tf.Tensor:
    """Draw K ids for each pool by stratified sampling, with repeats, (pools, K) int32.

    The distribution is cut into pools x K equal parts, and one id is drawn from each. The parts of
    a pool are spread evenly over the distribution. Each id is expected as often as with independent
    draws, but its number varies less from pool to pool, so sums over negatives have less noise.

    Args:
        cumulative_V: The cumulative distribution over ids, float64.
        samples: The number of ids of each pool, K.
        seed: (2,) integers; the draw is a function of it.
    """
    # The last number may round up to 1, where no id is.
    points = tf.minimum(draw_strata(pools * samples, seed), _BELOW_1)
    ids = count_at_most(cumulative_V, points)
    return tf.transpose(tf.reshape(ids, (samples, pools)))


def count_at_most(ascending_V: tf.Tensor, points_N: tf.Tensor) -> tf.Tensor:
    """Return how many of some ascending numbers are at most each point, (N,) int32.

    XLA's `tf.searchsorted` compares each point with all V numbers. The binary search here is one
    operation of XLA with log2(V) reads a point.
    """
    if not under_xla():
        return tf.searchsorted(ascending_V, points_N, side="right")
    ascending_V = tf.convert_to_tensor(ascending_V)  # no copy
    size = ascending_V.shape[0]
    below_N = tf.zeros(tf.shape(points_N), tf.int32)  # numbers that are known to be at most a point
    for bit in reversed(range(size.bit_length())):
        more_N = below_N + (1 << bit)
        is_below_N = tf.gather(ascending_V, tf.minimum(more_N, size) - 1) <= points_N
        below_N = tf.where((more_N <= size) & is_below_N, more_N, below_N)
    return below_N


def draw_strata(parts: int, seed: tf.Tensor) -> tf.Tensor:
    """Draw one uniform number from each of `parts` equal parts of the interval from 0 to 1.

    The last number may round up to 1.

    Args:
        seed: (2,) integers; the draw is a function of it.

    Returns:
        Numbers (parts,) float64, ascending.
    """
    part = tf.range(parts, dtype=tf.float64)
    return (part + uniform_fractions(parts, seed)) / parts


class LogUniform:
    """The distribution q(id) = log(1 + 1 / (id + 1)) / log(V + 1), which is close to Zipf's law.

    It is the distribution of TensorFlow's `log_uniform_candidate_sampler`, and takes no memory.

    Args:
        counts: (V,) occurrences of the words, descending; only their number is used.
    """

    def __init__(self, counts: np.ndarray, samples: int):
        self._words, self._samples = len(counts), samples

    def draw(self, seed: tf.Tensor) -> tf.Tensor:
        """Draw the samples of a step, ascending, with repeats, (K,) int32.

        The same seed gives the same words on every device.

        Args:
            seed: (2,) integers; the draw is a function of it.
        """
        points_K = draw_strata(self._samples, seed)
        # The inverse of the cumulative distribution, which is log(id + 2) / log(V + 1) up to an id.
        ids_K = tf.cast(tf.exp(points_K * np.log(self._words + 1)), tf.int32) - 1
        return tf.minimum(ids_K, self._words - 1)  # the last point may round up

    def log_expected(self, ids: tf.Tensor) -> tf.Tensor:
        """Return the logarithm of how often each id is expected in a step, float32."""
        share = tf.math.log1p(1 / (tf.cast(ids, tf.float32) + 1))
        return tf.math.log(share * np.float32(self._samples / np.log(self._words + 1)))


class Unigram:
    """The distribution in proportion to count ** 0.75 (Mikolov et al. 2013b, section 2.2).

    A count below 1 is taken as 1. A word that is never drawn would never be made less probable.

    Args:
        counts: (V,) occurrences of the words.
    """

    def __init__(self, counts: np.ndarray, samples: int):
        cumulative_V = cumulative_distribution(np.maximum(counts, 1), 0.75)
        self._cumulative_V = PreparedValues(cumulative_V)
        self._samples = samples

    def draw(self, seed: tf.Tensor) -> tf.Tensor:
        """Draw the samples of a step; see `LogUniform.draw`."""
        return draw_stratified(self._cumulative_V.read(), 1, self._samples, seed)[0]

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
