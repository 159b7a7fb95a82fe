"""Negative sampling with samples that groups of centres share."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from app.losses import sampling
from app.losses.logistic import logistic


class SharedNegatives:
    """K ids drawn for each group of centres, scored against every centre of the group.

    Sharing turns a gather for each pair into a product for each group, as Ji et al. 2016 do within
    one window ("Parallelizing Word2Vec in Shared and Distributed Memory"). Few centres should
    share: 128 samples for all 2,048 centres of a step cost the scores (data/benchmarks/README.md).

    counts: (V,) occurrences; ids are drawn in proportion to counts ** power. group: centres that
    share. samples: K. per_pair: the weight of all K together for a centre with one pair, so that
    the expected gradient is that of word2vec with this many negatives for each pair, save that
    word2vec.c skips a sample that is the word to predict.
    """

    def __init__(self, counts: np.ndarray, power: float, group: int, samples: int, per_pair: float):
        # A variable, as a constant of a large vocabulary would not fit the graph's 2 GB.
        self._cumulative_V = tf.Variable(sampling.cumulative(counts, power), trainable=False)
        self._group, self._samples = group, samples
        self._weight = per_pair / samples

    def draw(self, centres: int, seed: tf.Tensor) -> tf.Tensor:
        """The ids for so many centres, (G K,) int32: a function of the seed, (2,) integers."""
        groups = centres // self._group
        ids_GK = sampling.stratified(self._cumulative_V, groups, self._samples, seed)
        return tf.reshape(ids_GK, [-1])

    def loss(self, hidden_ND: tf.Tensor, rows_MD: tf.Tensor, pairs_N: tf.Tensor) -> tf.Tensor:
        """The loss of the hidden vectors against their groups' samples, a float32 scalar.

        rows_MD: the rows of what `draw` gave. pairs_N: how many pairs each hidden vector stands
        for.
        """
        dim = hidden_ND.shape[1]
        scores = tf.matmul(
            tf.reshape(hidden_ND, (-1, self._group, dim)),
            tf.reshape(rows_MD, (-1, self._samples, dim)),
            transpose_b=True,
        )
        weights = tf.reshape(pairs_N * self._weight, (-1, self._group, 1))
        return logistic(scores, weights, observed=False)
