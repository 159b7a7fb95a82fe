"""The recommender model, which learns rows of users and of items from pairs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from ..input.user_item_pairs import UserItemPairs
from ..losses.user_item_losses import UserItemBatch, UserItemLoss
from ..tables.base import TableSpec
from ..tables.initial import FirstColumns, LastColumn, Uniform
from ..tables.row_reads import take
from ..types import Batch, Rows
from .base import Outcome, draw_seed, initial_seed
from .row_lists import RowLists
from .scorers import Scorer

# The initial length of a vector, about, for any number of columns. It matters little: NDCG@20 of
# LastFM is .203 with 0.5, and .201 with the 0.1 of Rendle et al. 2022 ("Revisiting iALS", section
# 4.3).
_LENGTH = 0.5


@dataclasses.dataclass(frozen=True)
class Recommender:
    """A model that learns from pairs of a user and an item (see `UserItemPairs`).

    Attributes:
        pair_loss: The loss of the pairs. The items that it draws may be items that the user knows.
        row_l2: The strength of a penalty: half the sum of squares of the rows of each pair, each
            time the pair occurs (Rendle et al. 2009, section 4.3).
        start: By name of the table, a function that returns vectors to start from, float32, a row
            of K columns for each row of the table with K at most D. By default all numbers are
            random.
        lists: By name of the table, the rows whose sum is the vector of each user or item, if these
            have features; otherwise the vector is the row of the id.
        new_items: How many of the items, the last ones, are not in training.
    """

    users: int
    items: int
    scorer: Scorer
    pair_loss: UserItemLoss
    seed: int
    row_l2: float = 0.0
    start: Mapping[str, Callable[[], tf.Tensor]] = dataclasses.field(default_factory=dict)
    lists: Mapping[str, RowLists] = dataclasses.field(default_factory=dict)
    new_items: int = 0

    @property
    def dtype(self) -> tf.DType:
        """The dtype of the matrix products."""
        return self.pair_loss.dtype

    def tables(self) -> dict[str, TableSpec]:
        """Return the specs of the tables `users` and `items`."""
        return {
            "users": self._uniform("users", self.users, self.scorer.columns[0]),
            "items": self._with_biases(self._uniform("items", self.items, self.scorer.columns[1])),
        }

    def lookups(self, batch: Batch) -> dict[str, tf.Tensor | list[tf.Tensor]]:
        """Return the users of the pairs, and their items followed by drawn items.

        With features they are the rows of these users and items. Which items are drawn is up to the
        loss, and a function of the seed of the step.
        """
        return {
            name: self.lists[name].lookups(ids) if name in self.lists else ids
            for name, ids in self._ids(batch).items()
        }

    def gather(
        self, name: str, ids_N: tf.Tensor, gather: Callable[[tf.Tensor], tf.Tensor]
    ) -> tf.Tensor:
        """Return the vectors of users or items, (N, D) float32.

        Args:
            name: `users` or `items`.
            gather: Takes ids of rows of this table (U,), returns the rows (U, D) float32.
        """
        return self.lists[name].compose(ids_N, gather) if name in self.lists else gather(ids_N)

    def _ids(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Return the users of the pairs, and their items followed by drawn items."""
        pairs: UserItemPairs = batch.data
        items, seed = pairs.items, draw_seed(batch, "negatives")
        drawn = self.pair_loss.draw(items.shape[0], self.items - self.new_items, seed)
        if drawn is not None:
            items = tf.concat([items, drawn], axis=0)
        return {"users": pairs.users, "items": items}

    def loss(self, batch: Batch, rows: dict[str, Rows]) -> Outcome:
        """Return the loss of all pairs with the penalty of `row_l2`, and the sum of their weights.

        The sum of the weights, without signs, is the number of examples.
        """
        pairs: UserItemPairs = batch.data
        if self.lists:
            ids = self._ids(batch)
            composed = {
                name: lists.take_unique(ids[name], rows[name]) for name, lists in self.lists.items()
            }
            rows = {**rows, **composed}
        users_BD = take(rows["users"], tf.float32)
        pair_batch = UserItemBatch(
            self.scorer.encode_users(users_BD),
            self.scorer.encode_users(rows["users"].values_UD),
            rows["users"].inverse_N,
            rows["items"],
            pairs.ratings,
            pairs.weights,
            encode=self.scorer.encode_items,
        )
        total = self.pair_loss.loss(pair_batch)
        if self.row_l2:
            total += self._penalty(users_BD, rows["items"], pairs.weights)
        weights = tf.abs(pairs.weights) if self.pair_loss.has_disliked else pairs.weights
        return Outcome(total, tf.reduce_sum(weights))

    def _penalty(self, users_BD: tf.Tensor, items: Rows, weights_B: tf.Tensor) -> tf.Tensor:
        """Return the penalty of `row_l2`, of users and items of pairs, and of a pair's negatives.

        A pair of weight 0 has no penalty. Nor has the bias of an item that starts at a given value,
        nor an item that is drawn for all pairs of the batch.
        """
        items_ND = take(items, tf.float32)[: users_BD.shape[0] * (1 + self.pair_loss.negatives)]
        if self.pair_loss.initial_biases_V is not None:
            # A penalty would draw the bias to 0, away from its start.
            items_ND = items_ND[:, :-1]
        items_N = tf.reduce_sum(tf.square(items_ND), axis=1)
        items_B = tf.reduce_sum(tf.reshape(items_N, (-1, users_BD.shape[0])), axis=0)
        squares_B = tf.reduce_sum(tf.square(users_BD), axis=1) + items_B
        return 0.5 * self.row_l2 * tf.reduce_sum(tf.where(weights_B != 0, squares_B, 0.0))

    def _uniform(self, name: str, rows: int, columns: int) -> TableSpec:
        """Return a table that starts as `start`, or as random rows of length `_LENGTH`."""
        # A uniform distribution with this limit has a variance of _LENGTH^2 / columns.
        if name in self.lists:
            rows = self.lists[name].rows
        limit = _LENGTH * math.sqrt(3 / columns)
        initial: Any = Uniform(limit, initial_seed(name, self.seed))
        if name in self.start:
            initial = FirstColumns(self.start[name], initial)
        # The rows that many share, those of features, come last.
        return TableSpec(rows, columns, initial, by_frequency=name not in self.lists, grows=True)

    def _with_biases(self, spec: TableSpec) -> TableSpec:
        """Return the table with the loss's initial biases as last column, if it gives any."""
        if self.pair_loss.initial_biases_V is None:
            return spec
        last_V = tf.convert_to_tensor(self.pair_loss.initial_biases_V)
        if "items" in self.lists:  # the row that all items share has the mean bias
            mean = tf.reduce_mean(last_V)
            features = spec.rows - last_V.shape[0] - 1
            last_V = tf.concat([last_V - mean, [mean], tf.zeros(features)], axis=0)
        return dataclasses.replace(spec, initial=LastColumn(spec.initial, last_V))
