"""Rank all items for each user exactly, and compute metrics of held-out pairs.

Every item is ranked. Metrics on a sample of items order models differently than exact metrics
(Krichene & Rendle 2020).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from ...input.features import intervals
from ...input.user_item_pairs import KnownItems
from ...losses.user_item_losses import inner_products
from ...models.recommender import Recommender
from ...system.console import show_progress
from ...tables.arrays import row_slices
from ...tables.base import Table

# Scores that are computed at a time: 64 MB; top_k takes more beside them.
_SCORES = 1 << 24
_BLOCK = 64  # columns of a block, whose maximum is searched first
_MEANS = ("recall", "ndcg", "hit_rate", "mrr")
_PAIRS = 1 << 16  # pairs of a user and an item that are scored at a time


class Ranker:
    """Ranks items for users and scores pairs, by the current rows of the tables.

    Args:
        model: The recommender.
        k: Number of items to find for each user.

    Attributes:
        k: Number of items that are found for each user, at most all items.
        items: Number of all items.
        predicts_ratings: Whether the scores predict ratings.
    """

    def __init__(self, model: Recommender, tables: Mapping[str, Table], k: int):
        self.k, self.items = min(k, model.items), model.items
        self.predicts_ratings = model.pair_loss.predicts_ratings
        self._model, self._tables = model, tables
        self._users = max(1, min(_SCORES // model.items, model.users))
        self._best = tf.function(self._rank_block, autograph=False).get_concrete_function(
            tf.TensorSpec([self._users, model.scorer.columns[0]]),
            tf.TensorSpec([model.items, None]),
            tf.TensorSpec([None, 2], tf.int32),
        )

    def blocks(
        self, users_N: np.ndarray, known: KnownItems | None, rows_UD: np.ndarray | None = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield the best items of users, block by block, in the order of `users_N`.

        The best item is first; among equal scores, the item of the lowest id. If fewer than k items
        are left, the rest is -1 with score -inf.

        Args:
            users_N: Ids of users.
            known: Items to leave out for each user, or None.
            rows_UD: The rows of the users, float32; by default those of the table.

        Yields:
            Users (M,), their items (M, k) int32, and the scores (M, k) float32, the mean rating
            included. M differs.
        """
        items_VE = self.item_codes()
        for start in range(0, len(users_N), self._users):
            users_M = users_N[start : start + self._users]
            ids = tf.constant(np.pad(users_M, (0, self._users - len(users_M))))
            rows_MD = self._rows("users", ids) if rows_UD is None else tf.gather(rows_UD, ids)
            excluded_N2 = tf.constant(_known_positions(users_M, known))
            scores_MK, ids_MK = self._best(rows_MD, items_VE, excluded_N2)
            scores_MK = scores_MK[: len(users_M)].numpy()
            ids_MK = ids_MK[: len(users_M)].numpy()
            yield users_M, np.where(np.isneginf(scores_MK), -1, ids_MK), scores_MK

    def item_codes(self) -> tf.Tensor:
        """Return the codes of all items, (V, E) float32."""
        return self._encode_rows("items", self.items, self._model.scorer.encode_items)

    def ratings(self, users_N: np.ndarray, items_N: np.ndarray) -> np.ndarray:
        """Return the score of each pair, (N,) float32, with the mean rating added.

        Args:
            users_N: Ids of users.
            items_N: Ids of items.
        """
        scorer, scores = self._model.scorer, [np.empty(0, np.float32)]
        for start in range(0, len(users_N), _PAIRS):
            part = slice(start, start + _PAIRS)
            users = scorer.encode_users(self._rows("users", users_N[part]))
            items = scorer.encode_items(self._rows("items", items_N[part]))
            scores_N = inner_products(users, items) + self._model.pair_loss.mean
            scores.append(scores_N.numpy())
        return np.concatenate(scores)

    def vectors(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the vectors of all users (U, E) and of all items (V, E), float32.

        Their inner product plus the mean rating is the score.
        """
        model = self._model
        users_UE = self._encode_rows("users", model.users, model.scorer.encode_users)
        return users_UE.numpy(), self.item_codes().numpy()

    def _rank_block(self, rows_MD, items_VE, excluded_N2):
        """Return the k best scores of a block of users and their items, (M, k), best first.

        The score of an excluded (user of the block, item) is -inf. The mean rating is added.
        """
        users_ME = self._model.scorer.encode_users(rows_MD)
        scores_MV = tf.matmul(users_ME, items_VE, transpose_b=True)
        least_N = tf.fill(tf.shape(excluded_N2)[:1], -np.inf)
        scores_MV = tf.tensor_scatter_nd_update(scores_MV, excluded_N2, least_N)
        scores_MV = tf.ensure_shape(scores_MV, (self._users, self.items))
        scores_MK, ids_MK = _top(scores_MV, self.k)
        return scores_MK + self._model.pair_loss.mean, ids_MK

    def _encode_rows(self, name: str, count: int, code: Callable) -> tf.Tensor:
        """Return the first `count` rows of a table, encoded part by part by the function `code`."""
        codes = [
            code(self._rows(name, tf.range(part.start, part.stop)))
            for part in row_slices(count, self._tables[name].columns)
        ]
        return tf.concat(codes, axis=0)

    def _rows(self, name: str, ids_N: tf.Tensor | np.ndarray) -> tf.Tensor:
        """Return the rows of users or items, (N, D), with those of their features added."""
        return self._model.gather(name, ids_N, self._tables[name].gather)


def score(
    ranker: Ranker,
    train: KnownItems,
    heldout: KnownItems,
    tops: Sequence[int],
    check: Callable[[], None] = lambda: None,
) -> dict[str, float]:
    """Rank all items for the users with held-out items, and return the metrics by name.

    Means over these users, or 0 without any:
    - recall@k: share of the held-out items that are among the best k;
    - ndcg@k: sum of 1 / log2(rank + 1) over the held-out items among the best k, divided by its
    largest possible value for as many held-out items (both as in github.com/kuandeng/LightGCN,
    evaluator/python/evaluate_foldout.py; Jarvelin & Kekalainen 2002);
    - hit_rate@k: whether any held-out item is among the best k;
    - mrr@k: 1 / rank of the first held-out item among the best k, or 0.

    coverage@k is the share of all items that are among the best k of any of these users.

    Args:
        train: Items to leave out of the ranking.
        heldout: Items to find.
        tops: The values of k, at most the `k` that the ranker was made with.
        check: Called after each block of users; see `training.job.Scores`.
    """
    counts_U = np.diff(heldout.starts_U)
    users_N = np.flatnonzero(counts_U).astype(np.int32)
    heldout_codes_H = _pair_code(np.repeat(np.arange(len(counts_U)), counts_U), heldout.items_N)
    discounts_K = 1 / np.log2(np.arange(2, ranker.k + 2))
    ideal_K = np.cumsum(discounts_K)
    sums = dict.fromkeys((f"{name}@{k}" for k in tops for name in _MEANS), 0.0)
    recommended, done = {k: np.zeros(0, np.int32) for k in tops}, 0
    with show_progress("ranking items for users", len(users_N), " users") as show:
        for users_M, ids_MK, _ in ranker.blocks(users_N, train):
            show(done := done + len(users_M))
            check()
            counts_M = counts_U[users_M]
            codes_MK = _pair_code(users_M[:, np.newaxis], ids_MK)
            places_MK = np.searchsorted(heldout_codes_H, codes_MK)
            places_MK = np.minimum(places_MK, len(heldout_codes_H) - 1)
            hits_MK = (heldout_codes_H[places_MK] == codes_MK) & (ids_MK >= 0)
            for k in tops:
                hits = hits_MK[:, :k]
                has_hit_M = hits.any(axis=1)
                best_M = np.minimum(np.minimum(counts_M, k), ranker.k)
                gains_M = hits @ discounts_K[:k]
                sums[f"recall@{k}"] += (hits.sum(axis=1) / counts_M).sum()
                sums[f"ndcg@{k}"] += (gains_M / ideal_K[best_M - 1]).sum()
                sums[f"hit_rate@{k}"] += has_hit_M.sum()
                sums[f"mrr@{k}"] += (has_hit_M / (1 + hits.argmax(axis=1))).sum()
                recommended[k] = np.union1d(recommended[k], ids_MK[:, :k])
    values = {name: float(value / max(len(users_N), 1)) for name, value in sums.items()}
    for k in tops:
        values[f"coverage@{k}"] = float((recommended[k] >= 0).sum() / ranker.items)
    return values


def rating_errors(predicted_N: np.ndarray, ratings_N: np.ndarray) -> dict[str, float]:
    """Return the root mean squared error `rmse` and the mean absolute error `mae` of ratings."""
    errors_N = predicted_N.astype(np.float64) - ratings_N
    return {
        "rmse": float(np.sqrt(np.mean(np.square(errors_N)))),
        "mae": float(np.mean(np.abs(errors_N))),
    }


def _pair_code(users: np.ndarray, items: np.ndarray) -> np.ndarray:
    """Return an int64 number for each (user, item), ascending by user, then by item."""
    return (users.astype(np.int64) << 32) + items


def _known_positions(users_M: np.ndarray, known: KnownItems | None) -> np.ndarray:
    """Return the (row, column) of known items in a matrix of users and all items, (N, 2) int32.

    It is empty, (0, 2), if `known` is None.
    """
    if known is None:
        return np.zeros((0, 2), np.int32)
    counts_M = known.starts_U[users_M + 1] - known.starts_U[users_M]
    rows_N, index_N = intervals(known.starts_U[users_M], counts_M)
    return np.stack([rows_N, known.items_N[index_N]], axis=1).astype(np.int32)


def _top(scores_MV: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the k best scores of each row and their columns, (M, k).

    Among equal scores, the lowest columns come first. The best columns are in the k blocks of
    columns with the largest maxima. Searching only these blocks takes half the time of one `top_k`
    over all columns (41,000 columns, k = 20).
    """
    users, items = scores_MV.shape
    count = -(-items // _BLOCK)
    padded = tf.pad(scores_MV, [[0, 0], [0, count * _BLOCK - items]], constant_values=-np.inf)
    blocks_MNB = tf.reshape(padded, (users, count, _BLOCK))
    _, best_blocks_MK = tf.math.top_k(tf.reduce_max(blocks_MNB, axis=2), min(k, count))
    best_blocks_MK = tf.sort(best_blocks_MK, axis=1)
    candidates = tf.reshape(tf.gather(blocks_MNB, best_blocks_MK, batch_dims=1), (users, -1))
    best_MK, positions_MK = tf.math.top_k(candidates, k)
    block_MK = tf.gather(best_blocks_MK, positions_MK // _BLOCK, batch_dims=1)
    return best_MK, block_MK * _BLOCK + positions_MK % _BLOCK
