"""The softmax over the items of a batch, for recommenders."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import tensorflow as tf

from ..system.gradients import custom_gradient
from ..tables.row_reads import sum_rows
from .user_item_losses import UserItemBatch, UserItemLoss

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
    is_softmax = True

    def loss(self, batch: UserItemBatch) -> tf.Tensor:
        """Return the sum of the losses of all pairs, a float32 scalar.

        The unique items are padded to B, so that shapes are static. Under XLA they are already.
        """
        count, ids_U = batch.users_BE.shape[0], batch.items.ids_U
        last = self.initial_biases_V.shape[0] - 1
        missing = count - tf.size(ids_U)
        items_UE = batch.encode(batch.items.values_UD)
        expected_U = tf.gather(self.initial_biases_V, tf.minimum(ids_U, last))
        expected_U = tf.where(ids_U <= last, expected_U, math.inf)
        return in_batch_softmax(
            batch.users_BE / self.temperature,
            tf.ensure_shape(tf.pad(items_UE, [[0, missing], [0, 0]]), (count, items_UE.shape[1])),
            tf.ensure_shape(tf.concat([expected_U, tf.fill([missing], math.inf)], 0), (count,)),
            batch.items.inverse_N,
            batch.weights_B,
            self.dtype,
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
) -> tf.Tensor:
    """Return the sum of -log P of each pair's item (see `InBatchSoftmax`), a float32 scalar.

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
        value = -tf.reduce_sum(weights_B * tf.math.log(tf.maximum(own_B, _TINY)))

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            scale_B1 = (upstream * weights_B)[:, tf.newaxis]
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
