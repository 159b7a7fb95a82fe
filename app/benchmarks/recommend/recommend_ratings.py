"""The pairs of `recommend`, and the one scorer of all sides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ...config import Config, CorpusConfig, VocabularyConfig
from ...input import pairs, ratings
from ...input.pairs import KnownItems, Split
from ...losses.pair_losses import PairLoss
from ...models.factorization import MatrixFactorization
from ...models.recommender import Recommender
from ...tables.device import DeviceTable
from ...tasks.recommend import ranking_metrics
from ...tasks.recommend.ranking_metrics import Ranker
from ...text import corpus


class Data(NamedTuple):
    """The pairs: ours reads the files of `corpus`, peers `arrays`, by the ids of `split`."""

    corpus: str
    split: Split
    heldout: KnownItems
    arrays: Path


def read(train: str, heldout: str, arrays: Path) -> Data:
    """The pairs of files, named as by --corpus and --heldout; arrays: where to write some."""
    named = {"corpus": train, "heldout": heldout}
    sources = {
        flag: corpus.resolve(CorpusConfig(corpus=value), flag) for flag, value in named.items()
    }
    config = Config(vocabulary=VocabularyConfig(min_count=1))
    read = {flag: ratings.read(paths, config.ratings) for flag, paths in sources.items()}
    found = pairs.split_pairs(read["corpus"], read["heldout"], config)
    shape = len(found.users.tokens), len(found.items.tokens)
    np.savez(arrays, users=found.train.users_N, items=found.train.items_N, shape=shape)
    known = pairs.group_by_user(found.heldout, shape[0])
    return Data(",".join(sources["corpus"]), found, known, arrays)


def score(folder: Path, data: Data, tops: Sequence[int]) -> dict[str, float]:
    """The metrics of the vectors in a folder, whose inner products are scores."""
    matrices = {name: np.load(folder / f"{name}.npy") for name in ("users", "items")}
    users, items = matrices.values()
    inner = MatrixFactorization(users.shape[1], biased=False)
    model = Recommender(len(users), len(items), inner, PairLoss(), seed=0)
    tables = {
        name: DeviceTable(*matrix.shape, lambda shape, matrix=matrix: tf.convert_to_tensor(matrix))
        for name, matrix in matrices.items()
    }
    return ranking_metrics.score(
        Ranker(model, tables, max(tops)), data.split.known, data.heldout, tops
    )
