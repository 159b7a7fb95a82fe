"""The softmax of an item against samples of all items, for recommenders."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from ..system.gradients import custom_gradient
from ..tables.row_reads import sum_rows
from ..types import HOST
from .sampled.samplers import Unigram
from .user_item_losses import UserItemBatch, UserItemLoss

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
        )


def sampled_items_softmax(
    users_UE: tf.Tensor,
    items_CE: tf.Tensor,
    user_positions_B: tf.Tensor,
    item_positions_N: tf.Tensor,
    log_expected_K: tf.Tensor,
    weights_B: tf.Tensor,
    dtype: tf.DType = tf.float32,
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
    pairs, samples = weights_B.shape[0], log_expected_K.shape[0]
    weights_K1 = tf.exp(-log_expected_K)[:, tf.newaxis]

    @custom_gradient
    def loss(users_UE: tf.Tensor, items_CE: tf.Tensor):
        """Return the sum, with gradients by the users and by the items."""
        count, columns = tf.shape(users_UE)[0], users_UE.shape[1]
        missing = tf.math.floormod(-count, _USERS)
        users_ME = tf.pad(users_UE, [[0, missing], [0, 0]])
        items_NE = tf.gather(items_CE, item_positions_N)
        items_BE = tf.ensure_shape(items_NE[:pairs], (pairs, columns))
        samples_KE = tf.ensure_shape(items_NE[pairs:], (samples, columns))
        powers_MK, sums_M1, log_sums_M1 = _exponentiate(users_ME, samples_KE, weights_K1, dtype)
        users_BE = tf.gather(users_UE, user_positions_B)
        own_B = tf.reduce_sum(users_BE * items_BE, axis=1)
        margin_B = own_B - tf.gather(log_sums_M1[:, 0], user_positions_B)
        value = tf.reduce_sum(weights_B * tf.nn.softplus(-margin_B))

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            slope_B = upstream * weights_B * tf.sigmoid(-margin_B)
            slope_M = tf.math.unsorted_segment_sum(slope_B, user_positions_B, count + missing)
            # The factors of rows and of columns are multiplied into the small matrices.
            slope_M1 = slope_M[:, tf.newaxis] / sums_M1
            by_user_ME = slope_M1 * _product(powers_MK, weights_K1 * samples_KE, dtype)
            by_sample_KE = weights_K1 * _product(powers_MK, slope_M1 * users_ME, dtype, True)
            slope_B1 = slope_B[:, tf.newaxis]
            by_item_NE = tf.concat([-slope_B1 * users_BE, by_sample_KE], axis=0)
            return (
                by_user_ME[:count] - sum_rows(slope_B1 * items_BE, user_positions_B, count),
                sum_rows(by_item_NE, item_positions_N, tf.shape(items_CE)[0]),
            )

        return value, gradient

    return loss(users_UE, items_CE)


def _exponentiate(
    users_ME: tf.Tensor, samples_KE: tf.Tensor, weights_K1: tf.Tensor, dtype: tf.DType
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the exponentials of the scores of all samples, and their weighted sums.

    Args:
        users_ME: The codes of users, float32.
        samples_KE: The codes of the samples, float32.
        weights_K1: The weight of each sample in the sum, float32.
        dtype: The dtype of the products.

    Returns:
        powers_MK: Exponentials of the scores less the largest score of the user, `dtype`.
        sums_M1: Their weighted sum over the samples, float32.
        log_sums_M1: The logarithm of the weighted sum of the exponentials of the scores, float32.
    """
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
