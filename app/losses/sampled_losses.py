"""Losses that score words against samples of all words: sampled softmax and NCE."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ..tables.base import TableSpec
from ..tables.row_reads import take
from ..types import HOST, Rows
from .base import Part, Predictions
from .classes.class_softmax import ClassSoftmax
from .sampling import SAMPLERS


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
    words, which is inherited: `exact`, `priors` and `word_segments` belong to it.

    Args:
        counts: (V,) occurrences of the words, descending.
        sampler: The distribution of the samples, a key of `losses.sampling.SAMPLERS`.
    """

    is_likelihood, lists_pairs = False, False

    def __init__(self, counts: np.ndarray, columns: int, samples: int, sampler: str):
        super().__init__(len(counts), columns)
        self._sampler = SAMPLERS[sampler](counts, samples)
        self._samples = samples

    def tables(self) -> dict[str, TableSpec]:
        """Return the spec of the table of words, whose rows are looked up."""
        (spec,) = super().tables().values()
        return {"output": dataclasses.replace(spec, is_streamed=False)}

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
    """Return the dot product of every vector and every word of its group, (G, N, M)."""
    if hidden_GND.shape[1] == words_GMD.shape[1] == 1:
        # A matrix product for each single score costs more than the score.
        return tf.reduce_sum(hidden_GND * words_GMD, axis=2, keepdims=True)
    return tf.matmul(hidden_GND, words_GMD, transpose_b=True)


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


class Nce(SampledLoss):
    """A loss that tells the word to predict from K samples of noise by logistic regression.

    A word's log-probability is taken to be its score less log V. This constant makes rows of 0 the
    uniform distribution. The logit that a word comes from the text and not from the noise is its
    log-probability less log(K q), where q is the word's share of the noise (Gutmann and Hyvarinen
    2010; Mnih and Teh 2012). A sample that is the word to predict is kept, as in tf.nn.nce_loss.

    Args:
        counts: (V,) occurrences of the words, descending.
        sampler: The distribution of the noise, a key of `losses.sampling.SAMPLERS`.
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
