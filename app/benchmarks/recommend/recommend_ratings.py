"""Read the pairs of `recommend`, and score the vectors of all sides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ...config import settings
from ...input.user_item_pairs import KnownItems, Split, group_by_user
from ...losses.user_item_losses import UserItemLoss
from ...models.factorization import MatrixFactorization
from ...models.recommender import Recommender
from ...tables.device import DeviceTable
from ...tasks.recommend import ranking_metrics, recommend_data
from ...tasks.recommend.ranking_metrics import Ranker
from ...text import corpus


class Data(NamedTuple):
    """The pairs to train on and to score.

    Attributes:
        corpus: The files to train on, comma-separated, which Lexrow reads.
        split: The pairs to train on and the held-out pairs, by ids.
        heldout: The held-out items of each user.
        arrays: The .npz file of the pairs to train on, which peers read.
    """

    corpus: str
    split: Split
    heldout: KnownItems
    arrays: Path


def read(train: str, heldout: str, arrays: Path) -> Data:
    """Read the pairs, and write those to train on as arrays.

    Args:
        train: The value of --corpus.
        heldout: The value of --heldout.
        arrays: The file to write, .npz: `users` and `items`, the ids of the pairs, and `shape`, the
            numbers of users and items.

    Returns:
        The pairs. Every user and item of the training pairs has an id.

    Raises:
        UsageError: A file is not possible, or a value is empty.
        RunError: A file cannot be read.
    """
    config = settings.from_names({"corpus": train, "heldout": heldout, "min_count": 1})
    sources = corpus.resolve(config.corpus)
    corpus.resolve_heldout(config.corpus, heldout)  # refused before the pairs are read
    split = recommend_data.load_split(sources, config)
    shape = len(split.users.tokens), len(split.items.tokens)
    np.savez(arrays, users=split.train.users_N, items=split.train.items_N, shape=shape)
    known = group_by_user(split.heldout, shape[0])
    return Data(",".join(sources), split, known, arrays)


class _SavedLists:
    """Lists of items that a peer has ranked, in place of a `Ranker`.

    Args:
        ids_UK: The best items of all users, -1 where there are fewer.
        items: The number of all items.
    """

    def __init__(self, ids_UK: np.ndarray, items: int):
        self._ids_UK, self.k, self.items = ids_UK, ids_UK.shape[1], items

    def blocks(
        self, users_N: np.ndarray, known: KnownItems | None
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield the lists of all users at once; see `Ranker.blocks`. There are no scores."""
        yield users_N, self._ids_UK[users_N], np.zeros((len(users_N), self.k), np.float32)


def score(folder: Path, data: Data, tops: Sequence[int]) -> dict[str, float]:
    """Return the metrics of saved vectors, whose inner products rank the items, or of saved lists.

    The names are like recall@10. Items that a user has in training are not ranked for the user.

    Args:
        folder: The folder with users.npy and items.npy, or with ids.npy.
        data: The pairs.
        tops: The lengths of the lists.
    """
    if (folder / "ids.npy").exists():
        lists: Any = _SavedLists(np.load(folder / "ids.npy"), len(data.split.items.tokens))
        return ranking_metrics.score(lists, data.split.known, data.heldout, tops)
    matrices = {name: np.load(folder / f"{name}.npy") for name in ("users", "items")}
    users, items = matrices.values()
    inner = MatrixFactorization(users.shape[1], biased=False)
    model = Recommender(len(users), len(items), inner, UserItemLoss(), seed=0)
    tables = {
        name: DeviceTable(*matrix.shape, lambda shape, matrix=matrix: tf.convert_to_tensor(matrix))
        for name, matrix in matrices.items()
    }
    return ranking_metrics.score(
        Ranker(model, tables, max(tops)), data.split.known, data.heldout, tops
    )
