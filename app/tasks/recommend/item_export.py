"""Export vectors of users and items, for indexes of nearest neighbors.

The score of a user and an item is the inner product of their vectors, biases included. So the model
ranks the items with the largest inner products first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...checkpoints.workdir import Workdir
from ...errors import RunError
from ...exporting.product_quantization import import_faiss
from ...settings import RecommendConfig
from ...system.files import replacing, replacing_folder
from ...tables.arrays import row_slices
from .ranking_metrics import Ranker
from .recommend_model import TrainedRecommender, load_recommender

_README = "vectors.json"
# Items from which an index has lists. Below, every search scores all items: 48 ms for a million of
# 65 numbers on two cores if users come one at a time, and 16 ms if they come together.
_MANY = 1_000_000
# Rows that train a list (Faiss: at least 39), and rounds of k-means (Faiss's own number for lists).
_ROWS_PER_LIST, _ROUNDS = 64, 10
_SCORES = 1 << 24  # scores of users and items that are computed at a time: 64 MB
_SAMPLE, _TOP = 1000, 20  # users whose searches check an index, and items of each search
_GOOD, _LEAST = 0.99, 0.95  # shares of the best items: to search more lists below, and to refuse


def write_vectors(
    folder: str | Path, vectors: Mapping[str, tuple[Sequence[str], np.ndarray]], about: dict
) -> None:
    """Write NAME.npy, (V, E) float32, and NAME.tsv, a key per line, for each name.

    An earlier export in the folder is replaced as a whole.

    Args:
        vectors: By name, the keys and their vectors (V, E).
        about: Written as vectors.json.

    Raises:
        UsageError: The folder has other files.
        RunError: The folder cannot be written.
    """
    with replacing_folder(folder, _README) as temporary:
        for name, (keys, matrix_VE) in vectors.items():
            np.save(temporary / f"{name}.npy", matrix_VE)
            (temporary / f"{name}.tsv").write_text(
                "".join(f"{key}\n" for key in keys), encoding="utf-8"
            )
        (temporary / _README).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def write_faiss(path: str | Path, users_UE: np.ndarray, items_VE: np.ndarray) -> str:
    """Build and check an index of items by inner product for Faiss, and write it.

    A search of the index scores all items. From a million items on, it scores those of some lists
    (`_make_lists`), of so many that it finds 99 % of the best items.

    Args:
        users_UE: Vectors of users. About 1,000 of them are searched for, to check the index.
        items_VE: Vectors of items; their numbers in the index are the lines of items.tsv.

    Returns:
        The kind of the index and the share of the best items that it finds, as text.

    Raises:
        UsageError: Faiss is not installed.
        RunError: The index finds less than 95 % of the best items, or the file cannot be written.
    """
    faiss = import_faiss("faiss")
    queries_NE = users_UE[:: max(1, len(users_UE) // _SAMPLE)]
    k = min(_TOP, len(items_VE))
    least_N = _least_scores(queries_NE, items_VE, k)
    if len(items_VE) < _MANY:
        index, kind = faiss.IndexFlatIP(items_VE.shape[1]), "searched whole"
        index.add(items_VE)
        recall = _recall(index, queries_NE, items_VE, least_N, k)
    else:
        index = _make_lists(faiss, items_VE)
        while (recall := _recall(index, queries_NE, items_VE, least_N, k)) < _GOOD:
            if index.nprobe == index.nlist:
                break
            index.nprobe = min(2 * index.nprobe, index.nlist)
        kind = f"{index.nlist:,} lists, {index.nprobe:,} of them searched (nprobe)"
    found = f"finds {recall:.1%} of the best {k} items of {len(queries_NE):,} users"
    if recall < _LEAST:
        raise RunError(f"{path}: not written, as the index {found}; use --format=vectors")
    # Faiss's own writer ignores an error in the last buffer, as on a full disk.
    with replacing(path) as temporary, open(temporary, "wb") as file:
        faiss.write_index(index, faiss.PyCallbackIOWriter(file.write))
    return f"{kind}; {found}"


def _make_lists(faiss: Any, items_VE: np.ndarray) -> Any:
    """Return an index of items in lists, 4 times as many as the root of their number.

    Items are divided by the directions of vectors with one more number, which makes all equally
    long (Bachrach et al. 2014): nearest to a user, who has a 0 there, are then the items of largest
    inner product. By their own directions, or in a graph of inner products (HNSW), the items with
    small vectors, or with large ones, are not found.
    """
    count, columns = items_VE.shape
    squares_V = np.einsum("ve,ve->v", items_VE, items_VE)

    def lengthened(rows: slice | np.ndarray) -> np.ndarray:
        """Return rows with the number that makes them as long as the longest, (N, E + 1)."""
        return np.column_stack([items_VE[rows], np.sqrt(squares_V.max() - squares_V[rows])])

    lists = round(4 * count**0.5)
    sample = np.random.default_rng(0).choice(count, min(count, _ROWS_PER_LIST * lists), False)
    means = faiss.Kmeans(
        columns + 1, lists, niter=_ROUNDS, spherical=True, min_points_per_centroid=1, seed=1
    )
    means.train(lengthened(np.sort(sample)))
    centres = faiss.IndexFlatIP(columns)
    centres.add(np.ascontiguousarray(means.centroids[:, :columns]))
    index = faiss.IndexIVFFlat(centres, columns, lists, faiss.METRIC_INNER_PRODUCT)
    index.is_trained = True
    for part in row_slices(count, columns):
        _, lists_N1 = means.index.search(lengthened(part), 1)
        rows_NE = np.ascontiguousarray(items_VE[part], np.float32)
        index.add_core(len(rows_NE), faiss.swig_ptr(rows_NE), None, faiss.swig_ptr(lists_N1))
    return index


def _least_scores(queries_NE: np.ndarray, items_VE: np.ndarray, k: int) -> np.ndarray:
    """Return the k-th best score of any item for each query, (N,)."""
    block = max(1, _SCORES // len(items_VE))
    parts = (queries_NE[start : start + block] for start in range(0, len(queries_NE), block))
    # A copy, as a view of a column would keep all scores of its part.
    return np.concatenate([np.partition(part @ items_VE.T, -k)[:, -k].copy() for part in parts])


def _recall(
    index: Any, queries_NE: np.ndarray, items_VE: np.ndarray, least_N: np.ndarray, k: int
) -> float:
    """Return the share of k found items that score as high as the k-th best one, `least_N`.

    Any of several items with the same score is as good as another.
    """
    _, found_NK = index.search(queries_NE, k)
    scores_NK = np.einsum("ne,nke->nk", queries_NE, items_VE[found_NK])
    rounding_N = 1e-5 * np.abs(least_N) + 1e-9
    return float(np.mean((scores_NK >= (least_N - rounding_N)[:, None]) & (found_NK >= 0)))


def export_vectors(config: RecommendConfig, workdir: Workdir, path: str) -> str:
    """Write the vectors of users and items to a folder, and return a message.

    An earlier export in the folder is replaced (see `write_vectors`).

    Raises:
        UsageError: The folder has other files.
        RunError: There is no checkpoint that can be loaded, or the folder cannot be written.
    """
    recommender, users_UE, items_VE = _vectors(config, workdir)
    about = {
        "score": "the inner product of a user and an item, plus `mean`",
        "mean": recommender.model.pair_loss.mean,
        "columns": items_VE.shape[1],
    }
    vectors = {
        "users": (recommender.users.tokens, users_UE),
        "items": (recommender.items.tokens, items_VE),
    }
    write_vectors(path, vectors, about)
    return f"{path}: {len(users_UE):,} users and {len(items_VE):,} items"


def export_faiss(config: RecommendConfig, workdir: Workdir, path: str) -> str:
    """Write a Faiss index of the items, and return a message with its recall.

    Raises:
        UsageError: Faiss is not installed.
        RunError: There is no checkpoint that can be loaded, the index misses too many of the best
            items, or the file cannot be written.
    """
    _, users_UE, items_VE = _vectors(config, workdir)
    about = write_faiss(path, users_UE, items_VE)
    return f"{path}: {len(items_VE):,} items, in the order of items.tsv of the run; {about}"


def _vectors(
    config: RecommendConfig, workdir: Workdir
) -> tuple[TrainedRecommender, np.ndarray, np.ndarray]:
    """Load a recommender; return it with the vectors of its users and items, float32."""
    recommender = load_recommender(config, workdir)
    users_UE, items_VE = Ranker(recommender.model, recommender.tables, 1).vectors()
    return recommender, users_UE, items_VE


EXPORTS: dict[str, Callable[[RecommendConfig, Workdir, str], str]] = {
    "vectors": export_vectors,
    "faiss": export_faiss,
}
