"""Losses of pairs of a user and an item: their interface, squared error and pairwise ranking.

Each loss is a weighted sum over B pairs. A pair of weight 0 is padding and has no gradient.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from ..system.xla import uniform_integers
from ..tables.row_reads import take
from ..types import Rows
from .logistic import logistic


class UserItemBatch(NamedTuple):
    """The B pairs of a batch, and the functions that score them.

    Attributes:
        users_BE: The code of each pair's user, float32.
        users_UE: The codes of the unique users, float32.
        user_positions_B: The index of each pair's user among the unique users, int32.
        items: The rows of the B items, followed by the rows of the items of `UserItemLoss.draw`.
        ratings_B: The ratings, float32.
        weights_B: The weights, float32.
        encode: From rows of items (N, D) to their codes (N, E), float32.
        score: From the codes (N, E) of N users and of N items to the scores (N,), float32.
    """

    users_BE: tf.Tensor
    users_UE: tf.Tensor
    user_positions_B: tf.Tensor
    items: Rows
    ratings_B: tf.Tensor
    weights_B: tf.Tensor
    encode: Callable[[tf.Tensor], tf.Tensor]
    score: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


class UserItemLoss:
    """The base class of losses of pairs.

    Attributes:
        is_softmax: Whether each user is scored with many items at once, so that a score must be an
            inner product of codes.
        negatives: The number K of items that are drawn for each pair.
        user_pairs: The number of pairs of a user that come together in a batch.
        predicts_ratings: Whether scores predict ratings.
        mean: The mean rating, to be added to scores that predict ratings; 0 for other scores.
        temperature: The number by which the loss divides scores.
        initial_biases_V: The initial biases of the items; None for 0.
        dtype: The dtype of the matrix products.
    """

    is_softmax: bool = False
    negatives: int = 0
    user_pairs: int = 1
    predicts_ratings: bool = False
    mean: float = 0.0
    temperature: float = 1.0
    initial_biases_V: tf.Variable | None = None
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

        Args:
            batch: The pairs.

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
        scores_B = batch.score(batch.users_BE, batch.encode(take(batch.items, tf.float32)))
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

    def loss(self, batch: UserItemBatch) -> tf.Tensor:
        """Return the weighted sum of the losses of all pairs, a float32 scalar."""
        count = batch.users_BE.shape[0]
        items_NE = batch.encode(take(batch.items, tf.float32))
        scores_B = batch.score(batch.users_BE, items_NE[:count])
        users_NE = tf.tile(batch.users_BE, [self.negatives, 1])
        drawn_N = batch.score(users_NE, items_NE[count:])
        drawn_BK = tf.transpose(tf.reshape(drawn_N, (self.negatives, count)))
        weights_B1 = batch.weights_B[:, tf.newaxis] / self.negatives
        return logistic(scores_B[:, tf.newaxis] - drawn_BK, weights_B1, observed=True)
