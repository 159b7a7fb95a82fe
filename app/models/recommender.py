"""The recommender model, which learns rows of users and of items from pairs."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import tensorflow as tf

from ..input.pairs import Pairs
from ..losses import ranking
from ..tables.base import TableSpec
from ..tables.initial import LastColumn, Uniform
from ..tables.row_reads import take
from ..types import Batch, Rows
from .base import Outcome
from .factorization import Kernels, Scorer
from .words import draw_seed, initial_seed

# The initial length of a vector, about, for any number of columns. It matters little: NDCG@20 of
# LastFM is .203 with 0.5, and .201 with the 0.1 of Rendle et al. 2022 ("Revisiting iALS", section
# 4.3).
_LENGTH = 0.5


@dataclasses.dataclass(frozen=True)
class Recommender:
    """A model that learns from pairs of a user and an item (see `input.pairs.Pairs`).

    Attributes:
        users: The rows of the table of users.
        items: The rows of the table of items.
        scorer: Scores a user and an item.
        loss_name: The name of a function of `losses.ranking`.
        seed: The seed of the run.
        log_expected_V: For in_batch_softmax, the result of `log_expected`. The biases of items, if
            there are any, start at it, so that the shares of items need not be learned.
        mean: Added to every score.
        temperature: in_batch_softmax divides scores by it.
        negatives: For bpr, the number K of items drawn for each pair. They are drawn uniformly from
            all items, so an item that the user knows may be among them.
        row_l2: The strength of a penalty: half the sum of squares of the rows of each pair, each
            time the pair occurs (Rendle et al. 2009, section 4.3).
        dtype: The dtype of the products of in_batch_softmax.
    """

    users: int
    items: int
    scorer: Scorer
    loss_name: str
    seed: int
    log_expected_V: tf.Variable | None = None
    mean: float = 0.0
    temperature: float = 1.0
    negatives: int = 1
    row_l2: float = 0.0
    dtype: tf.DType = tf.float32

    def tables(self) -> dict[str, TableSpec]:
        """Return the tables `users` and `items`, and the scorer's own tables."""
        return {
            "users": self._rows("users", self.users, self.scorer.columns[0]),
            "items": self._biased(self._rows("items", self.items, self.scorer.columns[1])),
            **self.scorer.kernels(self.seed),
        }

    def lookups(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Return the users and items of the pairs, items drawn for bpr, and all rows of kernels."""
        pairs: Pairs = batch.data
        items = pairs.items
        if self.loss_name == "bpr":
            count, seed = items.shape[0] * self.negatives, draw_seed(batch, "negatives")
            drawn = tf.random.stateless_uniform((count,), seed, 0, self.items, items.dtype)
            items = tf.concat([items, drawn], axis=0)
        kernels = {
            name: tf.range(spec.rows) for name, spec in self.scorer.kernels(self.seed).items()
        }
        return {"users": pairs.users, "items": items, **kernels}

    def loss(self, batch: Batch, rows: dict[str, Rows]) -> Outcome:
        """Return the loss of all pairs, and the sum of their weights."""
        pairs: Pairs = batch.data
        kernels = {  # the unique rows of a range of ids are all rows, in order
            name: tf.ensure_shape(rows[name].values_UD, (spec.rows, spec.columns))
            for name, spec in self.scorer.kernels(self.seed).items()
        }
        users_BD = take(rows["users"], tf.float32)
        users_BE = self.user_codes(users_BD, kernels)
        if self.loss_name == "in_batch_softmax":
            total = self._in_batch(users_BE, rows["items"], pairs, kernels)
        else:
            items_NE = self.item_codes(take(rows["items"], tf.float32), kernels)
            total = self._pairwise(users_BE, items_NE, pairs, kernels)
        if self.row_l2:
            total += self._penalty(users_BD, rows["items"], pairs.weights)
        return Outcome(total, tf.reduce_sum(pairs.weights))

    def user_codes(self, rows_ND: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """Return the codes of users, (N, E) float32.

        Args:
            rows_ND: The rows of N users, float32.
            kernels: All rows of the scorer's own tables, by name.
        """
        return self.scorer.encode_users(rows_ND, kernels)

    def item_codes(self, rows_ND: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """Return the codes of items, (N, E) float32.

        Args:
            rows_ND: The rows of N items, float32.
            kernels: All rows of the scorer's own tables, by name.
        """
        return self.scorer.encode_items(rows_ND, kernels)

    def _in_batch(
        self, users_BE: tf.Tensor, items: Rows, pairs: Pairs, kernels: Kernels
    ) -> tf.Tensor:
        """Return the in-batch softmax; unique items are padded to B, so that shapes are static."""
        count = users_BE.shape[0]
        missing = count - tf.size(items.ids_U)
        items_UE = self.item_codes(items.values_UD, kernels)
        expected_U = tf.gather(self.log_expected_V, items.ids_U)
        return ranking.in_batch_softmax(
            users_BE / self.temperature,
            tf.ensure_shape(tf.pad(items_UE, [[0, missing], [0, 0]]), (count, items_UE.shape[1])),
            tf.ensure_shape(tf.concat([expected_U, tf.fill([missing], math.inf)], 0), (count,)),
            items.inverse_N,
            pairs.weights,
            self.dtype,
        )

    def _pairwise(
        self, users_BE: tf.Tensor, items_NE: tf.Tensor, pairs: Pairs, kernels: Kernels
    ) -> tf.Tensor:
        """Return squared_error or bpr; drawn items come after the items of the pairs."""
        count = users_BE.shape[0]
        scores_B = self.scorer.score_pairs(users_BE, items_NE[:count], kernels)
        if self.loss_name == "squared_error":
            return ranking.squared_error(scores_B + self.mean, pairs.ratings, pairs.weights)
        users_NE = tf.tile(users_BE, [self.negatives, 1])
        drawn_N = self.scorer.score_pairs(users_NE, items_NE[count:], kernels)
        drawn_BK = tf.transpose(tf.reshape(drawn_N, (self.negatives, count)))
        return ranking.bpr(scores_B, drawn_BK, pairs.weights)

    def _penalty(self, users_BD: tf.Tensor, items: Rows, weights_B: tf.Tensor) -> tf.Tensor:
        """Return the penalty of `row_l2`; the first B items are of pairs, the others are drawn."""
        items_ND = take(items, tf.float32)
        if self._starts_biased:  # a penalty would draw the bias to 0, away from its start
            items_ND = items_ND[:, :-1]
        items_N = tf.reduce_sum(tf.square(items_ND), axis=1)
        items_B = tf.reduce_sum(tf.reshape(items_N, (-1, users_BD.shape[0])), axis=0)
        squares_B = tf.reduce_sum(tf.square(users_BD), axis=1) + items_B
        return 0.5 * self.row_l2 * tf.reduce_sum(tf.where(weights_B > 0, squares_B, 0.0))

    @property
    def _starts_biased(self) -> bool:
        return self.scorer.biased and self.log_expected_V is not None

    def _rows(self, name: str, count: int, columns: int) -> TableSpec:
        # A uniform distribution with this limit has a variance of _LENGTH^2 / columns.
        limit = _LENGTH * math.sqrt(3 / columns)
        initial = Uniform(limit, initial_seed(name, self.seed))
        return TableSpec(count, columns, initial, by_frequency=True, grows=True)

    def _biased(self, spec: TableSpec) -> TableSpec:
        if not self._starts_biased:
            return spec
        last_V = tf.convert_to_tensor(self.log_expected_V)
        return dataclasses.replace(spec, initial=LastColumn(spec.initial, last_V))


def log_expected(counts_V: np.ndarray, pairs: int) -> np.ndarray:
    """Return the log-probability of each item to be in a batch, (V,) float32.

    Args:
        counts_V: The number of pairs that each item is in.
        pairs: The number of pairs of a batch.
    """
    share_V = counts_V / counts_V.sum()
    with np.errstate(divide="ignore"):  # a single item has the share 1, whose log1p(-1) is -inf
        return np.log(-np.expm1(pairs * np.log1p(-share_V))).astype(np.float32)
