"""Draws of negative samples."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

_BELOW_1 = float(np.nextafter(1.0, 0.0))


def cumulative_distribution(counts: np.ndarray, power: float) -> np.ndarray:
    """The cumulative distribution over ids in proportion to counts ** power, (V,) float64.

    power 0.75 is word2vec's (Mikolov et al. 2013b, section 2.2). float64, as the rarest of ten
    million ids would otherwise round to a share of 0. An id with a count of 0 has none.
    """
    counts = np.asarray(counts, np.float64)
    mass = np.cumsum(np.power(counts, power, out=np.zeros_like(counts), where=counts > 0))
    return mass / mass[-1]


def draw_stratified(
    cumulative_V: tf.Tensor, groups: int, samples: int, seed: tf.Tensor
) -> tf.Tensor:
    """`samples` ids for each of `groups`, (G, K) int32.

    The distribution is cut into G K equal parts; each gives one id, and a group's parts are evenly
    spread. Each id is expected as often as with independent draws, but a frequent one does not come
    twice in one group and never in the next: sums over negatives have less noise.
    """
    # The last uniform may round up to the end of the distribution, which is no id's.
    places = tf.minimum(draw_strata(groups * samples, seed), _BELOW_1)
    ids = tf.searchsorted(cumulative_V, places, side="right")
    return tf.transpose(tf.reshape(ids, (samples, groups)))


def draw_strata(parts: int, seed: tf.Tensor) -> tf.Tensor:
    """A number drawn from each of `parts` equal parts of 0 .. 1, in their order, float64."""
    part = tf.range(parts, dtype=tf.float64)
    uniform = tf.random.stateless_uniform((parts,), seed, dtype=tf.float64)
    return (part + uniform) / parts
