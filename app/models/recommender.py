"""A recommender: rows of users and of items, what scores them, and what it learns from."""

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

# About the length of a vector at first, whatever its columns; it matters little: NDCG@20 of LastFM
# is .203 from 0.5, and .201 from the 0.1 of Rendle et al. 2022 ("Revisiting iALS", section 4.3).
_LENGTH = 0.5


@dataclasses.dataclass(frozen=True)
class Recommender:
    """Learns from pairs of a user and an item (see `input.pairs.Pairs`).

    users, items: rows of the two tables. loss: a function of `losses.ranking`, by its name.
    log_expected_V: for in_batch_softmax, see `log_expected`; where items have biases, these are
    what they start at, so that the shares of items need not be learned. mean: added to every score.
    temperature: what in_batch_softmax divides scores by.
    negatives: K of bpr, drawn from all items alike: an item that the user knows may be among them.
    row_l2: strength of a penalty, half the square of each row of a pair, each time it comes (as of
    Rendle et al. 2009, section 4.3). dtype: of the products of in_batch_softmax.
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
        """Rows of users and of items, and the scorer's kernels."""
        return {
            "users": self._rows("users", self.users, self.scorer.columns[0]),
            "items": self._biased(self._rows("items", self.items, self.scorer.columns[1])),
            **self.scorer.kernels(self.seed),
        }

    def lookups(self, batch: Batch) -> dict[str, tf.Tensor]:
        """The pairs' users and items, the items drawn for bpr, and all of the kernels."""
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
        """The loss of all pairs, and the sum of their weights."""
        pairs: Pairs = batch.data
        kernels = {  # the distinct rows of a range of ids are all of them, in order
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
        """The codes of users' rows, (N, E) float32; kernels: the tables beside, whole."""
        return self.scorer.users(rows_ND, kernels)

    def item_codes(self, rows_ND: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """The codes of items' rows, (N, E) float32."""
        return self.scorer.items(rows_ND, kernels)

    def _in_batch(
        self, users_BE: tf.Tensor, items: Rows, pairs: Pairs, kernels: Kernels
    ) -> tf.Tensor:
        """in_batch_softmax, with columns for as many items as there may be: shapes are static."""
        count = users_BE.shape[0]
        missing = count - tf.size(items.ids_U)
        items_UE = self.item_codes(items.values_UD, kernels)
        expected_U = tf.gather(self.log_expected_V, items.ids_U)
        return ranking.in_batch_softmax(
            users_BE / self.temperature,
            tf.ensure_shape(tf.pad(items_UE, [[0, missing], [0, 0]]), (count, items_UE.shape[1])),
            tf.ensure_shape(tf.concat([expected_U, tf.fill([missing], math.inf)], 0), (count,)),
            items.positions_N,
            pairs.weights,
            self.dtype,
        )

    def _pairwise(
        self, users_BE: tf.Tensor, items_NE: tf.Tensor, pairs: Pairs, kernels: Kernels
    ) -> tf.Tensor:
        """squared_error, or bpr, whose drawn items come after those of the pairs."""
        count = users_BE.shape[0]
        scores_B = self.scorer.pairs(users_BE, items_NE[:count], kernels)
        if self.loss_name == "squared_error":
            return ranking.squared_error(scores_B + self.mean, pairs.ratings, pairs.weights)
        users_NE = tf.tile(users_BE, [self.negatives, 1])
        drawn_N = self.scorer.pairs(users_NE, items_NE[count:], kernels)
        drawn_BK = tf.transpose(tf.reshape(drawn_N, (self.negatives, count)))
        return ranking.bpr(scores_B, drawn_BK, pairs.weights)

    def _penalty(self, users_BD: tf.Tensor, items: Rows, weights_B: tf.Tensor) -> tf.Tensor:
        """That of row_l2; of the items, the first B are those of the pairs."""
        items_ND = take(items, tf.float32)
        if self._starts_biased:  # 0 is not what such a bias is to be drawn to
            items_ND = items_ND[:, :-1]
        items_N = tf.reduce_sum(tf.square(items_ND), axis=1)
        items_B = tf.reduce_sum(tf.reshape(items_N, (-1, users_BD.shape[0])), axis=0)
        squares_B = tf.reduce_sum(tf.square(users_BD), axis=1) + items_B
        return 0.5 * self.row_l2 * tf.reduce_sum(tf.where(weights_B > 0, squares_B, 0.0))

    @property
    def _starts_biased(self) -> bool:
        return self.scorer.biased and self.log_expected_V is not None

    def _rows(self, name: str, count: int, columns: int) -> TableSpec:
        limit = _LENGTH * math.sqrt(3 / columns)  # of a uniform distribution of that deviation
        initial = Uniform(limit, initial_seed(name, self.seed))
        return TableSpec(count, columns, initial, by_frequency=True, grows=True)

    def _biased(self, spec: TableSpec) -> TableSpec:
        if not self._starts_biased:
            return spec
        last_V = tf.convert_to_tensor(self.log_expected_V)
        return dataclasses.replace(spec, initial=LastColumn(spec.initial, last_V))


def log_expected(counts_V: np.ndarray, pairs: int) -> np.ndarray:
    """The logarithm of the chance that an item is in a batch of so many pairs, (V,) float32.

    counts_V: how many pairs each is in. What in_batch_softmax takes.
    """
    share_V = counts_V / counts_V.sum()
    with np.errstate(divide="ignore"):  # a single item has the share 1, and the chance 1
        return np.log(-np.expm1(pairs * np.log1p(-share_V))).astype(np.float32)
