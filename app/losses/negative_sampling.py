"""Negative sampling, where several vectors share their samples, and the logistic loss."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from ..system.python_functions import custom_gradient
from ..system.xla import under_xla
from ..tables.base import TableSpec
from ..tables.device import PreparedValues
from ..tables.initial import Constant
from ..tables.row_reads import take, take_parts
from ..types import Rows
from . import sampling
from .base import Loss, Part, Predictions


class NegativeSampling(Loss):
    """The logistic loss of a word against K samples (Mikolov et al. 2013b, equation 4).

    Consecutive vectors share a pool of K samples (--group_tokens). This turns a gather for each
    prediction into a matrix product for each pool, as Ji et al. 2016 do within one window
    ("Parallelizing Word2Vec in Shared and Distributed Memory"). A pool should have few vectors:
    with 128 samples for all 2,048 centres of a step the vectors score worse
    (data/benchmarks/README.md). Pools are independent of the groups of `Predictions`.

    The expected gradient equals word2vec's with `negatives` samples for each prediction. One thing
    differs: word2vec.c skips a sample that is the word to predict.

    Args:
        counts: (V,) occurrences of the words.
        power: Words are drawn in proportion to counts ** power.
        sharing: The number of vectors that share a pool. The vectors of a batch are a multiple.
        negatives: The weight of all K samples together for a vector with one word to predict.
    """

    def __init__(
        self,
        counts: np.ndarray,
        columns: int,
        power: float,
        sharing: int,
        samples: int,
        negatives: float,
    ):
        self._cumulative_V = PreparedValues(sampling.cumulative_distribution(counts, power))
        self._power = power
        self._spec = TableSpec(len(counts), columns, Constant(0.0), by_frequency=True)
        self._sharing, self._samples = sharing, samples
        self._weight = negatives / samples

    def reweigh(self, counts: np.ndarray) -> None:
        """Draw samples by other counts from now on, also in graphs that are already traced.

        Args:
            counts: (N,) occurrences of the first N ids; an id with a count of 0 is not drawn. The
                ids after them must have had a count of 0 until now.
        """
        self._cumulative_V.assign_first(sampling.cumulative_distribution(counts, self._power))

    def tables(self) -> dict[str, TableSpec]:
        """Return the spec of a table with a row for each word, all 0 at first (word2vec.c)."""
        return {"output": self._spec}

    def lookups(self, targets_GM: tf.Tensor, vectors: int, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Draw K samples for each pool, and return the words to predict, then the samples, flat."""
        pools = vectors // self._sharing
        cumulative_V = self._cumulative_V.read()
        drawn_PK = sampling.draw_stratified(cumulative_V, pools, self._samples, seed)
        ids = [tf.reshape(targets_GM, [-1]), tf.reshape(drawn_PK, [-1])]
        return {"output": tf.concat(ids, axis=0)}

    def loss(self, predictions: Predictions, rows: dict[str, Rows]) -> tuple[tf.Tensor, list[Part]]:
        """Return the weighted logistic loss of the words and of the samples, and no parts."""
        hidden_GND, targets_GM, weights_GNM, *_ = predictions
        columns = self._spec.columns
        (_, vectors, words), sharing = weights_GNM.shape, self._sharing
        if under_xla() and sharing % vectors == 0:
            return self._joined_loss(predictions, rows["output"]), []
        words_PD, samples_KD = take_parts(
            rows["output"], [targets_GM.shape.num_elements()], hidden_GND.dtype
        )
        if (vectors, words) == (1, 1):
            # A matrix product for each single score costs more than the score.
            hidden_ND = tf.reshape(hidden_GND, (-1, columns))
            total = logistic_of_pairs(hidden_ND, words_PD, tf.reshape(weights_GNM, (-1, 1)))
        else:
            words_GMD = tf.reshape(words_PD, (*targets_GM.shape, columns))
            scores_GNM = tf.matmul(hidden_GND, words_GMD, transpose_b=True)
            total = logistic(scores_GNM, weights_GNM, observed=True)
        scores = tf.matmul(
            tf.reshape(hidden_GND, (-1, sharing, columns)),
            tf.reshape(samples_KD, (-1, self._samples, columns)),
            transpose_b=True,
        )
        weights = tf.reshape(_sum_weights(predictions), (-1, sharing, 1))
        return total + logistic(scores, weights * self._weight, observed=False), []

    def _joined_loss(self, predictions: Predictions, rows: Rows) -> tf.Tensor:
        """Return the loss by one product for each pool: its vectors, its words and its samples.

        The product also has scores of vectors by words of the pool's other groups, whose weight is
        0. A GPU takes less time for these than for starting a second product.
        """
        hidden_GND, targets_GM, weights_GNM, *_ = predictions
        vectors, words = weights_GNM.shape[1:]
        groups = self._sharing // vectors  # of a pool
        pools = weights_GNM.shape[0] // groups
        words_N, samples_N = tf.split(rows.inverse_N, [targets_GM.shape.num_elements(), -1])
        inverse_PM = tf.concat(
            [tf.reshape(words_N, (pools, -1)), tf.reshape(samples_N, (pools, -1))], axis=1
        )
        rows_ND = take(rows._replace(inverse_N=tf.reshape(inverse_PM, [-1])), hidden_GND.dtype)
        scores_PNM = tf.matmul(
            tf.reshape(hidden_GND, (pools, self._sharing, -1)),
            tf.reshape(rows_ND, (*inverse_PM.shape, -1)),
            transpose_b=True,
        )
        own = tf.reshape(tf.eye(groups), (groups, 1, groups, 1))  # the words of a vector's group
        weights = tf.reshape(weights_GNM, (pools, groups, vectors, 1, words)) * own
        weights = tf.reshape(weights, (pools, self._sharing, groups * words))
        of_samples = tf.reshape(_sum_weights(predictions), (pools, -1, 1)) * self._weight
        of_samples = tf.repeat(of_samples, self._samples, axis=2)
        is_word = tf.range(inverse_PM.shape[1]) < groups * words
        return logistic(scores_PNM, tf.concat([weights, of_samples], axis=2), is_word)


def _sum_weights(predictions: Predictions) -> tf.Tensor:
    """Return the sum of the weights of each vector, (G, N, 1)."""
    if predictions.sums_GN1 is not None:
        return predictions.sums_GN1
    return tf.reduce_sum(predictions.weights_GNM, axis=2, keepdims=True)


def logistic(scores: tf.Tensor, weights: tf.Tensor, observed: bool | tf.Tensor) -> tf.Tensor:
    """Return the weighted sum of the logistic losses of scores (Mikolov et al. 2013b, equation 4).

    The gradient, weights (sigmoid(score) - observed), needs no logarithm. So TensorFlow prunes the
    loss from a step that does not use its value. softplus takes 4 times as long as sigmoid on a
    CPU.

    Args:
        scores: Any shape and float dtype.
        weights: float32, broadcasts to the scores. No gradient flows to it.
        observed: Whether the pairs are from the data, with a loss of -log sigmoid(score). If not,
            they are noise, with a loss of -log sigmoid(-score). A tensor of the shape of the last
            dimension if they differ.

    Returns:
        A float32 scalar.
    """

    @custom_gradient
    def loss(scores: tf.Tensor):
        """Return the weighted sum, with its gradient by the scores."""
        scores32 = tf.cast(scores, tf.float32)
        value = tf.reduce_sum(weights * tf.nn.softplus(tf.where(observed, -scores32, scores32)))

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            error = tf.sigmoid(scores32) - tf.cast(observed, tf.float32)
            return tf.cast(upstream * (weights * error), scores.dtype)

        return value, gradient

    return loss(scores)


def logistic_of_pairs(
    hidden_ND: tf.Tensor, words_ND: tf.Tensor, weights_N1: tf.Tensor
) -> tf.Tensor:
    """Return the logistic loss of observed pairs, each of one vector and one word.

    It is `logistic` of the dot products of the rows.

    Args:
        hidden_ND: The vectors, any float dtype.
        words_ND: The row of each vector's word, of the same dtype.
        weights_N1: The weight of each pair, float32. No gradient flows to it.

    Returns:
        A float32 scalar.
    """

    @custom_gradient
    def loss(hidden_ND: tf.Tensor, words_ND: tf.Tensor):
        """Return the weighted sum, with its gradients by the vectors and by the words."""
        scores_N1 = tf.reduce_sum(hidden_ND * words_ND, axis=1, keepdims=True)
        value = tf.reduce_sum(weights_N1 * tf.nn.softplus(-tf.cast(scores_N1, tf.float32)))
        return value, lambda upstream: _pair_gradients(hidden_ND, words_ND, weights_N1, upstream)

    return loss(hidden_ND, words_ND)


@tf.function(autograph=False, jit_compile=True)  # two passes over (N, D) instead of six
def _pair_gradients(
    hidden_ND: tf.Tensor, words_ND: tf.Tensor, weights_N1: tf.Tensor, upstream: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the gradients of `logistic_of_pairs` by the vectors and by the words, (N, D) each."""
    scores_N1 = tf.reduce_sum(hidden_ND * words_ND, axis=1, keepdims=True)
    chance_N1 = tf.sigmoid(tf.cast(scores_N1, tf.float32))
    error_N1 = tf.cast(upstream * weights_N1 * (chance_N1 - 1.0), hidden_ND.dtype)
    return error_N1 * words_ND, error_N1 * hidden_ND
