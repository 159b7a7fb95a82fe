"""Negative sampling with samples that groups of vectors share."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from ..tables.base import TableSpec
from ..tables.row_reads import take
from ..types import HOST, Rows
from . import sampling
from .base import Part, Predictions
from .candidate_scores import pair_scores
from .logistic import logistic


class NegativeSampling:
    """A word against K ids drawn for a group of vectors (Mikolov et al. 2013b, equation 4).

    Sharing turns a gather for each pair into a product for each group, as Ji et al. 2016 do within
    one window ("Parallelizing Word2Vec in Shared and Distributed Memory"). Few vectors should
    share: 128 samples for all 2,048 centres of a step cost the scores (data/benchmarks/README.md).

    counts: (V,) occurrences; ids are drawn in proportion to counts ** power. columns: D. group:
    vectors that share. samples: K. per_pair: the weight of all K together for a vector with one
    word to predict, so that the expected gradient is that of word2vec with this many negatives for
    each pair, save that word2vec.c skips a sample that is the word to predict.
    """

    def __init__(
        self,
        counts: np.ndarray,
        columns: int,
        power: float,
        group: int,
        samples: int,
        per_pair: float,
    ):
        # A variable, as a constant of a large vocabulary would not fit the graph's 2 GB.
        with tf.device(HOST):  # where ids are drawn
            self._cumulative_V = tf.Variable(
                sampling.cumulative_distribution(counts, power), trainable=False
            )
        self._power = power
        self._spec = TableSpec(len(counts), columns, tf.zeros, by_frequency=True)
        self._group, self._samples = group, samples
        self._weight = per_pair / samples

    def reweigh(self, counts: np.ndarray) -> None:
        """Draws by other counts from now on; an id with a count of 0 is not drawn.

        counts: (N,), of the first ids; the ids after them are to have had a count of 0 so far.
        """
        self._cumulative_V[: len(counts)].assign(
            sampling.cumulative_distribution(counts, self._power)
        )

    def tables(self) -> dict[str, TableSpec]:
        """A row for each word, 0 at first, as word2vec.c has it."""
        return {"output": self._spec}

    def lookups(self, targets_GM: tf.Tensor, vectors: int, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """The words to predict, then the samples of each group of vectors, one after the other."""
        groups = vectors // self._group
        drawn_GK = sampling.draw_stratified(self._cumulative_V, groups, self._samples, seed)
        ids = [tf.reshape(targets_GM, [-1]), tf.reshape(drawn_GK, [-1])]
        return {"output": tf.concat(ids, axis=0)}

    def loss(self, predictions: Predictions, rows: dict[str, Rows]) -> tuple[tf.Tensor, list[Part]]:
        """The logistic loss of all pairs and of their samples."""
        hidden_GND, targets_GM, weights_GNM = predictions
        columns = self._spec.columns
        words_PD, samples_KD = tf.split(
            take(rows["output"], hidden_GND.dtype), [targets_GM.shape.num_elements(), -1]
        )
        words_GMD = tf.reshape(words_PD, (*targets_GM.shape, columns))
        total = logistic(pair_scores(hidden_GND, words_GMD), weights_GNM, observed=True)

        scores = tf.matmul(
            tf.reshape(hidden_GND, (-1, self._group, columns)),
            tf.reshape(samples_KD, (-1, self._samples, columns)),
            transpose_b=True,
        )
        weights = tf.reshape(tf.reduce_sum(weights_GNM, axis=2), (-1, self._group, 1))
        return total + logistic(scores, weights * self._weight, observed=False), []
