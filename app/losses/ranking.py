"""Losses of pairs of a user and an item: of their rating, of their rank, of their likelihood.

Each is a sum over pairs, a float32 scalar. weights_B: of the pairs, float32; a pair of weight 0 has
no part in the loss, and no gradient comes from it.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from ..tables.row_reads import sum_rows
from .logistic import logistic

_TINY = np.finfo(np.float32).tiny  # a probability may round to 0


def squared_error(scores_B: tf.Tensor, ratings_B: tf.Tensor, weights_B: tf.Tensor) -> tf.Tensor:
    """The squares of what scores miss ratings by (Koren, Bell & Volinsky 2009, equation 2)."""
    return tf.reduce_sum(weights_B * tf.square(scores_B - ratings_B))


def bpr(scores_B: tf.Tensor, negatives_BK: tf.Tensor, weights_B: tf.Tensor) -> tf.Tensor:
    """-log sigmoid of how much better a pair scores than items drawn, the mean over K of those.

    Bayesian personalised ranking (Rendle et al. 2009, section 4.1, without its penalty).
    """
    better_BK = scores_B[:, tf.newaxis] - negatives_BK
    return logistic(better_BK, weights_B[:, tf.newaxis] / better_BK.shape[1], observed=True)


def in_batch_softmax(
    users_BE: tf.Tensor,
    items_CE: tf.Tensor,
    log_expected_C: tf.Tensor,
    places_B: tf.Tensor,
    weights_B: tf.Tensor,
    dtype: tf.DType = tf.float32,
) -> tf.Tensor:
    """-log P of each pair's item among the items of the batch, by a softmax of inner products.

    items_CE: the batch's distinct items, so that none is a negative of itself; others that the same
    user has are. places_B: which of them is a pair's own, int32. log_expected_C: the logarithm of
    how often an item is expected among them, float32, which its score is less: frequent items are
    negatives more often (Bengio & Senecal 2008; Yi et al. 2019, equation 4). Infinite for a column
    that is no item. dtype: of the products and of P.

    Takes B x C numbers twice, and computes no logarithm where nobody reads the loss.
    """

    @tf.custom_gradient
    def loss(users_BE: tf.Tensor, items_CE: tf.Tensor):
        scores_BC = tf.matmul(tf.cast(users_BE, dtype), tf.cast(items_CE, dtype), transpose_b=True)
        p_BC = tf.nn.softmax(scores_BC - tf.cast(log_expected_C, dtype))
        own_B = tf.cast(tf.gather(p_BC, places_B, batch_dims=1), tf.float32)
        value = -tf.reduce_sum(weights_B * tf.math.log(tf.maximum(own_B, _TINY)))

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            scale_B1 = (upstream * weights_B)[:, tf.newaxis]
            expected_BE = tf.cast(tf.matmul(p_BC, tf.cast(items_CE, dtype)), tf.float32)
            weighted_BE = scale_B1 * users_BE
            over_CE = tf.matmul(p_BC, tf.cast(weighted_BE, dtype), transpose_a=True)
            return (
                scale_B1 * (expected_BE - tf.gather(items_CE, places_B)),
                tf.cast(over_CE, tf.float32) - sum_rows(weighted_BE, places_B, items_CE.shape[0]),
            )

        return value, gradient

    return loss(users_BE, items_CE)
