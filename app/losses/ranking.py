"""Losses of pairs of a user and an item: squared error, pairwise ranking, in-batch softmax.

Each loss is a weighted sum over B pairs. A pair of weight 0 is padding and has no gradient.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from ..tables.row_reads import sum_rows
from .logistic import logistic

_TINY = np.finfo(np.float32).tiny  # keeps the logarithm of a probability finite if it rounds to 0


def squared_error(scores_B: tf.Tensor, ratings_B: tf.Tensor, weights_B: tf.Tensor) -> tf.Tensor:
    """Return the sum of squared errors (Koren, Bell & Volinsky 2009, equation 2).

    Args:
        scores_B: The predicted rating of each pair, float32.
        ratings_B: The rating of each pair, float32.
        weights_B: The weights of the pairs, float32.

    Returns:
        A float32 scalar.
    """
    return tf.reduce_sum(weights_B * tf.square(scores_B - ratings_B))


def bpr(scores_B: tf.Tensor, negatives_BK: tf.Tensor, weights_B: tf.Tensor) -> tf.Tensor:
    """Return the loss of Bayesian personalised ranking (Rendle et al. 2009, section 4.1).

    The loss of a pair is the mean of -log sigmoid(score of the pair - score of a drawn item) over K
    drawn items. The penalty of the paper is not included.

    Args:
        scores_B: The score of each pair, float32.
        negatives_BK: The scores of each pair's user with K drawn items, float32.
        weights_B: The weights of the pairs, float32.

    Returns:
        A float32 scalar.
    """
    margin_BK = scores_B[:, tf.newaxis] - negatives_BK
    return logistic(margin_BK, weights_B[:, tf.newaxis] / margin_BK.shape[1], observed=True)


def in_batch_softmax(
    users_BE: tf.Tensor,
    items_CE: tf.Tensor,
    log_expected_C: tf.Tensor,
    positions_B: tf.Tensor,
    weights_B: tf.Tensor,
    dtype: tf.DType = tf.float32,
) -> tf.Tensor:
    """Return the sum of -log P of each pair's item among the items of the batch.

    P is a softmax of inner products. Frequent items are negatives more often than others, so each
    score is corrected by the logarithm of how often its item is expected in a batch (Bengio &
    Senecal 2008; Yi et al. 2019, equation 4). Other items of the same user count as negatives.

    Memory holds B x C numbers twice. No logarithm is computed in a step in which nobody reads the
    loss.

    Args:
        users_BE: The code of each pair's user, float32.
        items_CE: The codes of the batch's unique items, float32.
        log_expected_C: The logarithm of how often each item is expected in a batch, float32;
            infinite for a column that is not an item.
        positions_B: The column of each pair's item, int32.
        weights_B: The weights of the pairs, float32.
        dtype: The dtype of the products and of P.

    Returns:
        A float32 scalar.
    """

    @tf.custom_gradient
    def loss(users_BE: tf.Tensor, items_CE: tf.Tensor):
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
