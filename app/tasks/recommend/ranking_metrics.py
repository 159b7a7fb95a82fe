"""The best items of each user, exactly, and how well they meet what is held out.

Every item is ranked, no sample of them: sampled metrics rank models otherwise than exact ones do
(Krichene & Rendle 2020).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from ...input.pairs import KnownItems
from ...models.factorization import Kernels
from ...models.recommender import Recommender
from ...tables.base import Table
from ...tables.row_reads import parts

# Scores that are computed at a time: 64 MB of them, with what top_k takes.
_SCORES = 1 << 24
_BLOCK = 64  # columns whose maximum is looked at first
_MEANS = ("recall", "ndcg", "hit_rate", "mrr")
_PAIRS = 1 << 16  # of a user and an item whose scores are computed at a time


class Ranker:
    """The k best items of users, and the scores of pairs, by the tables as they are."""

    def __init__(self, model: Recommender, tables: Mapping[str, Table], k: int):
        self.k, self.items = min(k, model.items), model.items
        self._model, self._tables = model, tables
        self._users = max(1, min(_SCORES // model.items, model.users))
        kernels = {
            name: tf.TensorSpec([spec.rows, spec.columns])
            for name, spec in model.scorer.kernels(model.seed).items()
        }
        self._best = tf.function(self._of_block, autograph=False).get_concrete_function(
            tf.TensorSpec([self._users, model.scorer.columns[0]]),
            tf.TensorSpec([model.items, None]),
            kernels,
            tf.TensorSpec([None, 2], tf.int32),
        )

    def blocks(
        self, users_N: np.ndarray, known: KnownItems | None
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Some users at a time, with their best items, (M, k) int32, and the scores, float32.

        Best first, of equal ones that of lower id; items that the user knows are left out. Where
        fewer than k are left, the rest is -1, with a score of -inf.
        """
        kernels = self._kernels()
        items_VE = self._codes("items", self.items, self._model.item_codes, kernels)
        for start in range(0, len(users_N), self._users):
            users_M = users_N[start : start + self._users]
            missing = self._users - len(users_M)
            rows_MD = self._tables["users"].gather(tf.constant(np.pad(users_M, (0, missing))))
            excluded_N2 = _places(users_M, known)
            scores_MK, ids_MK = self._best(rows_MD, items_VE, kernels, tf.constant(excluded_N2))
            scores_MK = scores_MK[: len(users_M)].numpy()
            ids_MK = ids_MK[: len(users_M)].numpy()
            yield users_M, np.where(np.isneginf(scores_MK), -1, ids_MK), scores_MK

    def ratings(self, users_N: np.ndarray, items_N: np.ndarray) -> np.ndarray:
        """The score of each user and item, (N,) float32."""
        model, found = self._model, [np.empty(0, np.float32)]
        kernels = self._kernels()
        for start in range(0, len(users_N), _PAIRS):
            some = slice(start, start + _PAIRS)
            users = model.user_codes(self._tables["users"].gather(users_N[some]), kernels)
            items = model.item_codes(self._tables["items"].gather(items_N[some]), kernels)
            found.append((model.scorer.pairs(users, items, kernels) + model.mean).numpy())
        return np.concatenate(found)

    def vectors(self) -> tuple[np.ndarray, np.ndarray]:
        """The codes of all users and all items, (U, E) and (V, E) float32."""
        model, kernels = self._model, self._kernels()
        users_UE = self._codes("users", model.users, model.user_codes, kernels)
        items_VE = self._codes("items", model.items, model.item_codes, kernels)
        return users_UE.numpy(), items_VE.numpy()

    def _of_block(self, rows_MD, items_VE, kernels, excluded_N2):
        model = self._model
        scores_MV = model.scorer.all(model.user_codes(rows_MD, kernels), items_VE, kernels)
        least_N = tf.fill(tf.shape(excluded_N2)[:1], -np.inf)
        scores_MV = tf.tensor_scatter_nd_update(scores_MV, excluded_N2, least_N)
        scores_MV = tf.ensure_shape(scores_MV, (self._users, self.items))
        scores_MK, ids_MK = _top(scores_MV, self.k)
        return scores_MK + model.mean, ids_MK

    def _codes(self, name: str, count: int, code: Callable, kernels: Kernels) -> tf.Tensor:
        """The codes of all rows of a table."""
        table = self._tables[name]
        found = [
            code(table.gather(tf.range(part.start, part.stop)), kernels)
            for part in parts(count, table.columns)
        ]
        return tf.concat(found, axis=0)

    def _kernels(self) -> Kernels:
        return {
            name: self._tables[name].gather(tf.range(spec.rows))
            for name, spec in self._model.scorer.kernels(self._model.seed).items()
        }


def score(
    ranker: Ranker, train: KnownItems, heldout: KnownItems, tops: Sequence[int]
) -> dict[str, float]:
    """Metrics by name, of the users with something held out, at each k of `tops`.

    train: whose items are left out of the ranking. Means over users of: recall, the share of the
    items held out that are among the best k; ndcg, the sum of 1 / log2(rank + 1) of those that are,
    over its greatest value with as many items held out and k places (both as
    github.com/kuandeng/LightGCN, evaluator/python/evaluate_foldout.py, has them; Jarvelin &
    Kekalainen 2002); hit_rate, whether any is; mrr, 1 / the rank of the first, or 0. coverage: the
    share of all items that is among the best k of any of these users.
    """
    counts_U = np.diff(heldout.starts_U)
    users_N = np.flatnonzero(counts_U).astype(np.int32)
    codes_H = _code(np.repeat(np.arange(len(counts_U)), counts_U), heldout.items_N)
    discounts_K = 1 / np.log2(np.arange(2, ranker.k + 2))
    ideal_K = np.cumsum(discounts_K)
    sums = dict.fromkeys((f"{name}@{k}" for k in tops for name in _MEANS), 0.0)
    found = {k: np.zeros(0, np.int32) for k in tops}
    for users_M, ids_MK, _ in ranker.blocks(users_N, train):
        counts_M = counts_U[users_M]
        asked_MK = _code(users_M[:, np.newaxis], ids_MK)
        places_MK = np.minimum(np.searchsorted(codes_H, asked_MK), len(codes_H) - 1)
        hits_MK = (codes_H[places_MK] == asked_MK) & (ids_MK >= 0)
        for k in tops:
            hits = hits_MK[:, :k]
            any_M = hits.any(axis=1)
            best_M = np.minimum(np.minimum(counts_M, k), ranker.k)
            gains_M = hits @ discounts_K[:k]
            sums[f"recall@{k}"] += (hits.sum(axis=1) / counts_M).sum()
            sums[f"ndcg@{k}"] += (gains_M / ideal_K[best_M - 1]).sum()
            sums[f"hit_rate@{k}"] += any_M.sum()
            sums[f"mrr@{k}"] += (any_M / (1 + hits.argmax(axis=1))).sum()
            found[k] = np.union1d(found[k], ids_MK[:, :k])
    values = {name: float(value / max(len(users_N), 1)) for name, value in sums.items()}
    for k in tops:
        values[f"coverage@{k}"] = float((found[k] >= 0).sum() / ranker.items)
    return values


def rating_errors(predicted_N: np.ndarray, ratings_N: np.ndarray) -> dict[str, float]:
    """The root of the mean square, and the mean, of what predictions miss ratings by."""
    missed_N = predicted_N.astype(np.float64) - ratings_N
    return {
        "rmse": float(np.sqrt(np.mean(np.square(missed_N)))),
        "mae": float(np.mean(np.abs(missed_N))),
    }


def _code(users: np.ndarray, items: np.ndarray) -> np.ndarray:
    """A number for each user and item, ascending by user, then item."""
    return (users.astype(np.int64) << 32) + items


def _places(users_M: np.ndarray, known: KnownItems | None) -> np.ndarray:
    """The places, (N, 2) int32, of what users know in a matrix of these users and all items."""
    if known is None:
        return np.zeros((0, 2), np.int32)
    counts_M = known.starts_U[users_M + 1] - known.starts_U[users_M]
    rows_N = np.repeat(np.arange(len(users_M)), counts_M)
    before_M = np.cumsum(counts_M) - counts_M
    of_N = np.arange(len(rows_N)) + (known.starts_U[users_M] - before_M)[rows_N]
    return np.stack([rows_N, known.items_N[of_N]], axis=1).astype(np.int32)


def _top(scores_MV: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor]:
    """The k best scores of each row and their columns, (M, k); of equal ones the first columns.

    They are in the k blocks of columns that have the greatest maxima, of equal ones the first. To
    look only there takes half the time of a single `top_k` (41,000 columns, k = 20).
    """
    users, items = scores_MV.shape
    count = -(-items // _BLOCK)
    padded = tf.pad(scores_MV, [[0, 0], [0, count * _BLOCK - items]], constant_values=-np.inf)
    blocks_MNB = tf.reshape(padded, (users, count, _BLOCK))
    _, chosen_MK = tf.math.top_k(tf.reduce_max(blocks_MNB, axis=2), min(k, count))
    chosen_MK = tf.sort(chosen_MK, axis=1)
    left = tf.reshape(tf.gather(blocks_MNB, chosen_MK, batch_dims=1), (users, -1))
    best_MK, places_MK = tf.math.top_k(left, k)
    of_block_MK = tf.gather(chosen_MK, places_MK // _BLOCK, batch_dims=1)
    return best_MK, of_block_MK * _BLOCK + places_MK % _BLOCK
