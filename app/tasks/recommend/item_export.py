"""Export vectors of users and items, for indexes of nearest neighbors.

The score of a user and an item is the inner product of their vectors, biases included. So the model
ranks the items with the largest inner products first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from ...checkpoints.workdir import Workdir
from ...exporting import word2vec
from ...exporting.product_quantization import import_faiss
from ...settings import RecommendConfig
from ...system.files import replacing, replacing_folder
from ...types import WordVectors
from .ranking_metrics import Ranker
from .recommend_model import TrainedRecommender, load_recommender

_README = "vectors.json"


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


def write_faiss(path: str | Path, items_VE: np.ndarray) -> None:
    """Write an index of items for Faiss, which scores all items by their inner products.

    Args:
        items_VE: Vectors of items; their numbers in the index are the lines of items.tsv.

    Raises:
        UsageError: Faiss is not installed.
        RunError: The file cannot be written.
    """
    faiss = import_faiss("faiss")
    index = faiss.IndexFlatIP(items_VE.shape[1])
    index.add(items_VE)
    # Faiss's own writer ignores an error in the last buffer, as on a full disk.
    with replacing(path) as temporary, open(temporary, "wb") as file:
        faiss.write_index(index, faiss.PyCallbackIOWriter(file.write))


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
    """Write a Faiss index of the items, and return a message.

    Raises:
        UsageError: Faiss is not installed.
        RunError: There is no checkpoint that can be loaded, or the file cannot be written.
    """
    _, _, items_VE = _vectors(config, workdir)
    write_faiss(path, items_VE)
    return f"{path}: {len(items_VE):,} items, in the order of items.tsv of the run"


def export_word2vec(config: RecommendConfig, workdir: Workdir, path: str) -> str:
    """Write the vectors of items, without biases, in word2vec's format, and return a message.

    Raises:
        UsageError: A name has white space.
        RunError: There is no checkpoint that can be loaded, or the file cannot be written.
    """
    recommender, _, items_VE = _vectors(config, workdir)
    items_VD = items_VE[:, : config.model.dim]  # a bias, which comes after, is no direction
    word2vec.write(WordVectors(recommender.items.tokens, items_VD, recommender.items.counts), path)
    return f"{path}: {len(items_VD):,} items"


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
    "word2vec": export_word2vec,
}
