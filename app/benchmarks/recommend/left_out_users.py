"""Measure the lists of users who were not in training, beside those of users who were.

Some users are left out, a model is trained on the pairs of all others, and the rows of the users
that were left out are solved for, as `lexrow.recommend --items` does.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...checkpoints.workdir import Workdir
from ...input.user_item_pairs import KnownItems
from ...tasks.recommend import new_users, ranking_metrics, recommend_model
from ...tasks.recommend.ranking_metrics import Ranker
from ..harness import trainer
from .recommend_ratings import Data

_LARGEST_SHARE = 10  # at most one in so many users is left out


def choose(data: Data, count: int) -> np.ndarray:
    """Return users to leave out, at even distances among those with held-out items, (M,).

    Args:
        data: The pairs.
        count: The number of users; a tenth of all users at most.
    """
    scored_N = np.flatnonzero(np.diff(data.heldout.starts_U))
    count = min(count, len(data.split.users.tokens) // _LARGEST_SHARE, len(scored_N))
    return scored_N[np.linspace(0, len(scored_N), count, endpoint=False).astype(int)]


def select_heldout(data: Data, users_M: np.ndarray) -> Data:
    """Return the data with the held-out items of the given users only."""
    counts_U = np.diff(data.heldout.starts_U)
    is_kept_U = np.isin(np.arange(len(counts_U)), users_M)
    starts_U = np.concatenate([[0], np.cumsum(counts_U * is_kept_U)])
    kept = KnownItems(starts_U, data.heldout.items_N[np.repeat(is_kept_U, counts_U)])
    return data._replace(heldout=kept)


def write_others(data: Data, users_M: np.ndarray, path: Path) -> None:
    """Write the training pairs of all other users as CSV with the columns `user` and `item`."""
    train, split = data.split.train, data.split
    is_kept_N = ~np.isin(train.users_N, users_M)
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["user", "item"])
        writer.writerows(
            (split.users.tokens[user], split.items.tokens[item])
            for user, item in zip(
                train.users_N[is_kept_N].tolist(), train.items_N[is_kept_N].tolist(), strict=True
            )
        )


class _SolvedRows:
    """Ranks items for solved rows, in place of a `Ranker`; user m has the row m."""

    def __init__(self, ranker: Ranker, rows_MD: np.ndarray):
        self._ranker, self._rows_MD = ranker, rows_MD
        self.k, self.items = ranker.k, ranker.items

    def blocks(
        self, users_N: np.ndarray, known: KnownItems | None
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield the lists of the users; see `Ranker.blocks`."""
        assert len(users_N) == len(self._rows_MD), "every user that was left out is scored"
        yield from self._ranker.rows_blocks(self._rows_MD, known)


def score(workdir: str, data: Data, users_M: np.ndarray, tops: Sequence[int]) -> dict[str, float]:
    """Solve for the rows of the users that were left out; return their metrics and the seconds.

    Items that no other user has are left out, in training and in held-out pairs; users who have no
    other items, too.

    Args:
        workdir: The workdir of a run on the pairs of the other users.
        data: All pairs.
        users_M: The users that were left out.
        tops: The lengths of the lists.

    Returns:
        The metrics by names such as recall@10; `users`, the number of scored users; and
        `solve_seconds`, of all users.
    """
    trained = recommend_model.load_recommender(trainer.read_config(workdir), Workdir(workdir))
    numbers = {token: number for number, token in enumerate(trained.items.tokens)}
    id_V = np.array([numbers.get(token, -1) for token in data.split.items.tokens], np.int32)

    def translate(items: KnownItems, user: int) -> np.ndarray:
        """Return the items of a user as ids of the run, ascending, without unknown ones."""
        ids_N = id_V[items.items_N[items.starts_U[user] : items.starts_U[user + 1]]]
        return np.sort(ids_N[ids_N >= 0])

    lists = [(translate(data.split.known, user), translate(data.heldout, user)) for user in users_M]
    lists = [(chosen, wanted) for chosen, wanted in lists if len(chosen) and len(wanted)]
    chosen, wanted = (_join([pair[part] for pair in lists]) for part in (0, 1))
    ranker = Ranker(trained.model, trained.tables, max(tops))
    clock = time.perf_counter()
    rows_MD = new_users.solve_rows(trained.model, trained.tables, ranker, chosen)
    seconds = time.perf_counter() - clock
    lists_of_rows: Any = _SolvedRows(ranker, rows_MD)
    metrics = ranking_metrics.score(lists_of_rows, chosen, wanted, tops)
    return {**metrics, "users": len(lists), "solve_seconds": seconds}


def _join(lists: Sequence[np.ndarray]) -> KnownItems:
    """Return the items of several users."""
    starts_U = np.concatenate([[0], np.cumsum([len(items_N) for items_N in lists])]).astype(int)
    return KnownItems(starts_U, np.concatenate([np.zeros(0, np.int32), *lists]))
