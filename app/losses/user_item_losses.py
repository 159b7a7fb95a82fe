"""Losses of pairs of a user and an item: squared error, ranking, and softmaxes over items.

Each loss is a weighted sum over B pairs. A pair of weight 0 is padding and has no gradient. A pair
of negative weight -w is of an item that the user dislikes: its term is w times -log P that an item
drawn at random ranks above it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ..system.python_functions import custom_gradient
from ..system.xla import under_xla, uniform_integers
from ..tables.row_reads import sum_rows, take
from ..types import HOST, Rows
from .negative_sampling import logistic
from .sampling import Unigram


class UserItemBatch(NamedTuple):
    """The B pairs of a batch, and the function that encodes their items.

    Attributes:
        users_BE: The code of each pair's user, float32.
        users_UE: The codes of the unique users, float32.
        user_positions_B: The index of each pair's user among the unique users, int32.
        items: The rows of the B items, followed by the rows of the items of `UserItemLoss.draw`.
        ratings_B: The ratings, float32.
        weights_B: The weights, float32.
        encode: From rows of items (N, D) to their codes (N, E), float32. The score of a user and an
            item is the inner product of their codes.
    """

    users_BE: tf.Tensor
    users_UE: tf.Tensor
    user_positions_B: tf.Tensor
    items: Rows
    ratings_B: tf.Tensor
    weights_B: tf.Tensor
    encode: Callable[[tf.Tensor], tf.Tensor]


def inner_products(users_NE: tf.Tensor, items_NE: tf.Tensor) -> tf.Tensor:
    """Return the score of each user and the item beside it, by their codes, (N,) float32."""
    return tf.reduce_sum(users_NE * items_NE, axis=1)


class UserItemLoss:
    """The base class of losses of pairs. `Recommender` calls `draw` for the rows, and then `loss`.

    Attributes:
        is_softmax: Whether each user is scored with many items at once.
        negatives: The number K of items that are drawn for each pair.
        user_pairs: The number of pairs of a user that come together in a batch.
        predicts_ratings: Whether scores predict ratings.
        mean: The mean rating, to be added to scores that predict ratings; 0 for other scores.
        temperature: The number by which the loss divides scores.
        initial_biases_V: The initial biases of the items; None for 0.
        has_disliked: Whether some pairs are of disliked items.
    """

    is_softmax: bool = False
    negatives: int = 0
    user_pairs: int = 1
    predicts_ratings: bool = False
    mean: float = 0.0
    temperature: float = 1.0
    initial_biases_V: tf.Variable | None = None
    has_disliked: bool = False
    dtype: tf.DType = tf.float32

    def draw(self, pairs: int, items: int, seed: tf.Tensor) -> tf.Tensor | None:
        """Return the ids of the items that are drawn for a batch, (N,) int32, or None.

        By default they are K items for each pair, each of them any item with the same probability.

        Args:
            pairs: The number of pairs of the batch, B.
            items: The number of all items.
            seed: (2,) int64; the draw is a function of it.
        """
        if not self.negatives:
            return None
        count = pairs * self.negatives
        return uniform_integers((count,), seed, 0, items)

    def loss(self, batch: UserItemBatch) -> tf.Tensor:
        """Return the weighted sum of the losses of all pairs, a float32 scalar.

        Raises:
            NotImplementedError: Always, in this base class.
        """
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class SquaredError(UserItemLoss):
    """The squared error of predicted ratings (Koren, Bell & Volinsky 2009, equation 2).

    Attributes:
        mean: The mean rating.
    """

    mean: float
    predicts_ratings = True

    def loss(self, batch: UserItemBatch) -> tf.Tensor:
        """Return the weighted sum of squared errors of score + mean, a float32 scalar."""
        scores_B = inner_products(batch.users_BE, batch.encode(take(batch.items, tf.float32)))
        errors_B = scores_B + self.mean - batch.ratings_B
        return tf.reduce_sum(batch.weights_B * tf.square(errors_B))


@dataclasses.dataclass(frozen=True)
class Bpr(UserItemLoss):
    """Bayesian personalised ranking (Rendle et al. 2009, section 4.1), without its penalty.

    The loss of a pair is the mean of -log sigmoid(score of the pair - score of a drawn item) over K
    drawn items.

    Attributes:
        negatives: K.
    """

    negatives: int
    has_disliked: bool = False

    def loss(self, batch: UserItemBatch) -> tf.Tensor:
        """Return the weighted sum of the losses of all pairs, a float32 scalar."""
        count = batch.users_BE.shape[0]
        items_NE = batch.encode(take(batch.items, tf.float32))
        scores_B = inner_products(batch.users_BE, items_NE[:count])
        users_NE = tf.tile(batch.users_BE, [self.negatives, 1])
        drawn_N = inner_products(users_NE, items_NE[count:])
        drawn_BK = tf.transpose(tf.reshape(drawn_N, (self.negatives, count)))
        margins_BK = scores_B[:, tf.newaxis] - drawn_BK
        weights_B1 = batch.weights_B[:, tf.newaxis] / self.negatives
        if self.has_disliked:
            margins_BK *= tf.sign(weights_B1)
            weights_B1 = tf.abs(weights_B1)
        return logistic(margins_BK, weights_B1, observed=True)


_TINY = np.finfo(np.float32).tiny  # keeps the logarithm of a probability finite if it rounds to 0


@dataclasses.dataclass(frozen=True)
class InBatchSoftmax(UserItemLoss):
    """The sum of -log P of each pair's item among the items of the batch.

    P is a softmax of inner products. Frequent items are negatives more often than others, so each
    score is corrected by the logarithm of how often its item is expected in a batch (Bengio &
    Senecal 2008; Yi et al. 2019, equation 4). Other items of the same user count as negatives.

    Attributes:
        initial_biases_V: The result of `log_expected`. The biases of items, if there are any, start
            at it, so that the shares of items need not be learned.
        temperature: The number by which scores are divided.
        dtype: The dtype of the products and of P.
    """

    initial_biases_V: tf.Variable
    temperature: float = 1.0
    dtype: tf.DType = tf.float32
    has_disliked: bool = False
    is_softmax = True

    def loss(self, batch: UserItemBatch) -> tf.Tensor:
        """Return the sum of the losses of all pairs, a float32 scalar.

        The unique items are padded to B, so that shapes are static. Under XLA they are already.
        """
        count, ids_U = batch.users_BE.shape[0], batch.items.ids_U
        missing = count - tf.size(ids_U)
        items_UE = batch.encode(batch.items.values_UD)
        if under_xla():  # the padding has the largest int32 as its id
            last = self.initial_biases_V.shape[0] - 1
            expected_U = tf.gather(self.initial_biases_V, tf.minimum(ids_U, last))
            expected_U = tf.where(ids_U <= last, expected_U, math.inf)
        else:
            expected_U = tf.gather(self.initial_biases_V, ids_U)
        return in_batch_softmax(
            batch.users_BE / self.temperature,
            tf.ensure_shape(tf.pad(items_UE, [[0, missing], [0, 0]]), (count, items_UE.shape[1])),
            tf.ensure_shape(tf.concat([expected_U, tf.fill([missing], math.inf)], 0), (count,)),
            batch.items.inverse_N,
            batch.weights_B,
            self.dtype,
            self.has_disliked,
        )


def log_expected(counts_V: np.ndarray, pairs: int) -> np.ndarray:
    """Return the log-probability of each item to be in a batch, (V,) float32.

    An item without pairs has -inf, a single item 0.

    Args:
        counts_V: The number of pairs that each item is in.
        pairs: The number of pairs of a batch.
    """
    share_V = counts_V / counts_V.sum()
    with np.errstate(divide="ignore"):  # a single item has the share 1, whose log1p(-1) is -inf
        return np.log(-np.expm1(pairs * np.log1p(-share_V))).astype(np.float32)


def in_batch_softmax(
    users_BE: tf.Tensor,
    items_CE: tf.Tensor,
    log_expected_C: tf.Tensor,
    positions_B: tf.Tensor,
    weights_B: tf.Tensor,
    dtype: tf.DType = tf.float32,
    has_disliked: bool = False,
) -> tf.Tensor:
    """Return the sum of -log P of each pair's item (see `InBatchSoftmax`), a float32 scalar.

    For a disliked item P is its odds against the mean of the items of the batch.

    Memory holds B x C numbers twice. The gradient is a formula of its own, so TensorFlow prunes the
    logarithms from a step that does not use the value of the loss.

    Args:
        users_BE: The code of each pair's user, float32.
        items_CE: The codes of the batch's unique items, float32.
        log_expected_C: The logarithm of how often each item is expected in a batch, float32;
            infinite for a column that is not an item.
        positions_B: The column of each pair's item, int32.
        weights_B: The weights of the pairs, float32.
        dtype: The dtype of the products and of P.
    """

    @custom_gradient
    def loss(users_BE: tf.Tensor, items_CE: tf.Tensor):
        """Return the sum, with gradients by the users and by the items."""
        scores_BC = tf.matmul(tf.cast(users_BE, dtype), tf.cast(items_CE, dtype), transpose_b=True)
        p_BC = tf.nn.softmax(scores_BC - tf.cast(log_expected_C, dtype))
        own_B = tf.cast(tf.gather(p_BC, positions_B, batch_dims=1), tf.float32)
        log_p_B = tf.math.log(tf.maximum(own_B, _TINY))
        values_B, slopes_B = -weights_B * log_p_B, weights_B
        if has_disliked:
            items = tf.math.count_nonzero(tf.math.is_finite(log_expected_C), dtype=tf.float32)
            odds_B = log_p_B + tf.math.log(items)
            values_B, factor_B = _with_disliked(values_B, 1.0, odds_B, weights_B)
            slopes_B = weights_B * factor_B
        value = tf.reduce_sum(values_B)

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            scale_B1 = (upstream * slopes_B)[:, tf.newaxis]
            expected_BE = tf.cast(tf.matmul(p_BC, tf.cast(items_CE, dtype)), tf.float32)
            weighted_BE = scale_B1 * users_BE
            by_columns_CE = tf.matmul(p_BC, tf.cast(weighted_BE, dtype), transpose_a=True)
            return (
                scale_B1 * (expected_BE - tf.gather(items_CE, positions_B)),
                tf.cast(by_columns_CE, tf.float32)
                - sum_rows(weighted_BE, positions_B, items_CE.shape[0]),
            )

        return value, gradient

    return loss(users_BE, items_CE)


# Users are padded to a multiple of this number: oneDNN prepares a kernel for each new shape.
_USERS = 64


@dataclasses.dataclass(frozen=True)
class SampledItems(UserItemLoss):
    """The sum of -log P of each pair's item, P being a softmax over all items, which is estimated.

    The sum over all items is estimated by the pair's item and K samples, which all pairs of the
    batch share. Each sample is divided by how often it is expected (Bengio & Senecal 2008). The
    samples are scored once for each user of the batch, and not for each pair. So pairs of the same
    user cost little if they are in the same batch.

    Attributes:
        sampler: The distribution of the samples.
        initial_biases_V: The logarithm of the number of pairs of each item. The biases of items, if
            there are any, start at it, so that the shares of items need not be learned.
        user_pairs: The number of pairs of a user that come together in a batch.
        temperature: The number by which scores are divided.
        dtype: The dtype of the products with the samples.
    """

    sampler: Unigram
    initial_biases_V: tf.Variable
    user_pairs: int = 1
    temperature: float = 1.0
    dtype: tf.DType = tf.float32
    has_disliked: bool = False
    is_softmax = True

    def draw(self, pairs: int, items: int, seed: tf.Tensor) -> tf.Tensor:
        """Return the K samples of the batch, (K,) int32."""
        return self.sampler.draw(seed)

    def loss(self, batch: UserItemBatch) -> tf.Tensor:
        """Return the sum of the losses of all pairs, a float32 scalar."""
        pairs = batch.weights_B.shape[0]
        with tf.device(HOST):
            samples_K = tf.gather(batch.items.ids_U, batch.items.inverse_N[pairs:])
        return sampled_items_softmax(
            batch.users_UE / self.temperature,
            batch.encode(batch.items.values_UD),
            batch.user_positions_B,
            batch.items.inverse_N,
            self.sampler.log_expected(samples_K),
            batch.weights_B,
            self.dtype,
            self.has_disliked,
        )


def sampled_items_softmax(
    users_UE: tf.Tensor,
    items_CE: tf.Tensor,
    user_positions_B: tf.Tensor,
    item_positions_N: tf.Tensor,
    log_expected_K: tf.Tensor,
    weights_B: tf.Tensor,
    dtype: tf.DType = tf.float32,
    has_disliked: bool = False,
) -> tf.Tensor:
    """Return the sum of -log P of each pair's item (see `SampledItems`), a float32 scalar.

    Memory holds U x K numbers twice. The gradient is a formula of its own, as products of samples
    are scored and differentiated by user.

    Args:
        users_UE: The codes of the unique users, float32.
        items_CE: The codes of the unique items of pairs and samples, float32.
        user_positions_B: The index of each pair's user in `users_UE`, int32.
        item_positions_N: The index in `items_CE` of each of the B pairs' items, and then of each of
            the K samples, int32.
        log_expected_K: The logarithm of how often each sample is expected, float32.
        weights_B: The weights of the pairs, float32.
        dtype: The dtype of the products with the samples.
    """
    weights_K1 = tf.exp(-log_expected_K)[:, tf.newaxis]

    @custom_gradient
    def loss(users_UE: tf.Tensor, items_CE: tf.Tensor):
        """Return the sum, with gradients by the users and by the items."""
        count = tf.shape(users_UE)[0]
        missing = tf.math.floormod(-count, _USERS)
        users_ME = tf.pad(users_UE, [[0, missing], [0, 0]])
        items_NE = tf.gather(items_CE, item_positions_N)
        items_BE, samples_KE = tf.split(items_NE, [weights_B.shape[0], log_expected_K.shape[0]])
        powers_MK, sums_M1, log_sums_M1 = _exponentiate(users_ME, samples_KE, weights_K1, dtype)
        users_BE = tf.gather(users_UE, user_positions_B)
        own_B = inner_products(users_BE, items_BE)
        margin_B = own_B - tf.gather(log_sums_M1[:, 0], user_positions_B)
        values_B, factor_B = weights_B * tf.nn.softplus(-margin_B), tf.sigmoid(-margin_B)
        if has_disliked:
            odds_B = margin_B + tf.math.log(tf.reduce_sum(weights_K1))
            values_B, factor_B = _with_disliked(values_B, factor_B, odds_B, weights_B)
        value = tf.reduce_sum(values_B)

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            slope_B1 = (upstream * weights_B * factor_B)[:, tf.newaxis]
            slope_M1 = tf.math.unsorted_segment_sum(slope_B1, user_positions_B, count + missing)
            # The factors of rows and of columns are multiplied into the small matrices.
            slope_M1 /= sums_M1
            by_user_ME = slope_M1 * _product(powers_MK, weights_K1 * samples_KE, dtype)
            by_sample_KE = weights_K1 * _product(powers_MK, slope_M1 * users_ME, dtype, True)
            by_item_NE = tf.concat([-slope_B1 * users_BE, by_sample_KE], axis=0)
            return (
                by_user_ME[:count] - sum_rows(slope_B1 * items_BE, user_positions_B, count),
                sum_rows(by_item_NE, item_positions_N, tf.shape(items_CE)[0]),
            )

        return value, gradient

    return loss(users_UE, items_CE)


def _with_disliked(
    values_B: tf.Tensor, factors_B: tf.Tensor | float, odds_B: tf.Tensor, weights_B: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the losses of pairs, in which those of disliked items are put, and their factors.

    The derivative of a loss by the score of the item is minus the weight times the factor.

    Args:
        values_B: The losses of pairs of liked items.
        factors_B: Their factors.
        odds_B: The logarithm of the odds of the item against a random one.
        weights_B: The weights, negative for disliked items.
    """
    is_disliked_B = weights_B < 0
    return (
        tf.where(is_disliked_B, -weights_B * tf.nn.softplus(odds_B), values_B),
        tf.where(is_disliked_B, tf.sigmoid(odds_B), factors_B),
    )


def _exponentiate(
    users_ME: tf.Tensor, samples_KE: tf.Tensor, weights_K1: tf.Tensor, dtype: tf.DType
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the exponentials of the scores of all samples, and their weighted sums."""
    scores_MK = tf.matmul(tf.cast(users_ME, dtype), tf.cast(samples_KE, dtype), transpose_b=True)
    scores_MK = tf.cast(scores_MK, tf.float32)
    greatest_M1 = tf.reduce_max(scores_MK, axis=1, keepdims=True)
    powers_MK = tf.exp(scores_MK - greatest_M1)
    sums_M1 = tf.matmul(powers_MK, weights_K1)
    return tf.cast(powers_MK, dtype), sums_M1, greatest_M1 + tf.math.log(sums_M1)


def _product(
    powers_MK: tf.Tensor, values: tf.Tensor, dtype: tf.DType, transposed: bool = False
) -> tf.Tensor:
    """Return the product of the exponentials, or of their transpose, and a matrix, float32."""
    product = tf.matmul(powers_MK, tf.cast(values, dtype), transpose_a=transposed)
    return tf.cast(product, tf.float32)
