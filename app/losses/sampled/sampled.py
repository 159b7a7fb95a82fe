"""The base class of losses that score the words to predict against samples of all words."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ...tables.row_reads import take
from ...types import HOST, Rows
from ..base import Part, Predictions
from ..classes.class_softmax import ClassSoftmax
from .samplers import SAMPLERS


class Scores(NamedTuple):
    """Scores, less the logarithm of how often their word is expected among the samples.

    Attributes:
        words_GNM: The score of each vector of a group and each word of the group, float32.
        samples_GNK: The score of each vector and each sample of the step, float32.
        drawn_GM: Whether the word is one of the K samples of the step, bool.
    """

    words_GNM: tf.Tensor
    samples_GNK: tf.Tensor
    drawn_GM: tf.Tensor


class SampledLoss(ClassSoftmax):
    """A loss that reads the rows of the words to predict, and of K samples that a step shares.

    One matrix product scores all vectors against all samples. The loss trains a softmax over all
    words, which is inherited: `tables`, `exact`, `priors` and `word_groups` belong to it.

    Args:
        counts: (V,) occurrences of the words, descending.
        columns: The columns of a vector, D.
        samples: The number of samples of a step, K.
        sampler: The distribution of the samples, a key of `losses.sampled.samplers.SAMPLERS`.
    """

    is_likelihood, lists_pairs = False, False

    def __init__(self, counts: np.ndarray, columns: int, samples: int, sampler: str):
        super().__init__(len(counts), columns)
        self._sampler = SAMPLERS[sampler](counts, samples)
        self._samples = samples

    def losses(self, scores: Scores, weights_GNM: tf.Tensor) -> tf.Tensor:
        """Return the weighted loss of each vector, (G, N) float32.

        Args:
            scores: The scores of the words to predict and of the samples.
            weights_GNM: The weight of each vector and word, float32.

        Raises:
            NotImplementedError: Always, in this base class.
        """
        raise NotImplementedError

    def lookups(self, targets_GM: tf.Tensor, vectors: int, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Draw the samples of the step, and return the words to predict, then the samples."""
        ids = [tf.reshape(targets_GM, [-1]), self._sampler.draw(seed)]
        return {"output": tf.concat(ids, axis=0)}

    def loss(self, predictions: Predictions, rows: dict[str, Rows]) -> tuple[tf.Tensor, list[Part]]:
        """Return the sum of the losses of all vectors, a float32 scalar; there are no parts."""
        return tf.reduce_sum(self.vector_losses(predictions, rows)), []

    def vector_losses(self, predictions: Predictions, rows: dict[str, Rows]) -> tf.Tensor:
        """Return the weighted loss of each vector, (G N,) float32. It can be differentiated.

        Args:
            predictions: Hidden vectors, words and weights.
            rows: The rows of `lookups`, by name of the table.
        """
        scores = self._scores(predictions, rows["output"])
        return tf.reshape(self.losses(scores, predictions.weights_GNM), [-1])

    def _scores(self, predictions: Predictions, rows: Rows) -> Scores:
        """Score all vectors with their words and the samples, and correct for expected counts.

        `rows` are those of `lookups`, with `ids_U`: first the words to predict, then the samples.
        """
        hidden_GND, targets_GM, *_ = predictions
        columns, words = hidden_GND.shape[2], tf.size(targets_GM)
        values_ND = take(rows, hidden_GND.dtype)
        with tf.device(HOST):
            ids_N = tf.gather(rows.ids_U, rows.inverse_N)
        expected_N = self._sampler.log_expected(ids_N)
        words_GMD = tf.reshape(values_ND[:words], (*_shape(targets_GM), columns))
        words_GNM = tf.cast(_score_words(hidden_GND, words_GMD), tf.float32)
        expected_GM = tf.reshape(expected_N[:words], _shape(targets_GM))
        samples_NK = tf.matmul(
            tf.reshape(hidden_GND, (-1, columns)),
            tf.ensure_shape(values_ND[words:], (self._samples, columns)),
            transpose_b=True,
        )
        samples_NK = tf.cast(samples_NK, tf.float32) - expected_N[words:]
        count_U = tf.math.unsorted_segment_sum(
            tf.ones(self._samples), rows.inverse_N[words:], tf.size(rows.ids_U)
        )
        drawn_P = tf.gather(count_U, rows.inverse_N[:words]) > 0
        return Scores(
            words_GNM - expected_GM[:, tf.newaxis],
            tf.reshape(samples_NK, (*_shape(hidden_GND)[:2], self._samples)),
            tf.reshape(drawn_P, _shape(targets_GM)),
        )


def _shape(tensor: tf.Tensor) -> list[int | tf.Tensor]:
    """Return the shape of a tensor, with an int for every static dimension."""
    dynamic = tf.unstack(tf.shape(tensor))
    return [
        size if static is None else static
        for static, size in zip(tensor.shape, dynamic, strict=True)
    ]


def _score_words(hidden_GND: tf.Tensor, words_GMD: tf.Tensor) -> tf.Tensor:
    """Return the dot product of every vector and every word of its group, (G, N, M).

    Args:
        hidden_GND: The N vectors of each group.
        words_GMD: The rows of the M words of each group, of the same dtype.
    """
    if hidden_GND.shape[1] == words_GMD.shape[1] == 1:
        # A matrix product for each single score costs more than the score.
        return tf.reduce_sum(hidden_GND * words_GMD, axis=2, keepdims=True)
    return tf.matmul(hidden_GND, words_GMD, transpose_b=True)
