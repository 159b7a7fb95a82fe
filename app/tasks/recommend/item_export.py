"""Vectors of users and items whose inner product is the score: for indexes of nearest neighbours.

The greatest inner products with a user's vector are those of the items that the model would rank
first, biases included.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...errors import UsageError
from ...system.files import replacing, replacing_folder

_README = "vectors.json"
# Links of a node (Malkov & Yashunin 2018, section 4.1: 5 to 48), and candidates in building and in
# searching (hnswlib's ALGO_PARAMS.md and bindings: 200 to build with).
_LINKS, _CANDIDATES = 32, 200
_SAMPLE, _TOP = 1000, 20  # users by whom an index is checked, and items of each


def write_vectors(
    folder: str | Path, vectors: dict[str, tuple[Sequence[str], np.ndarray]], about: dict
) -> None:
    """Writes NAME.npy, (V, E) float32, and NAME.tsv, a key a line, for each name; and `about`.

    UsageError for a folder that holds other files, RunError if it cannot be written.
    """
    with replacing_folder(folder, _README) as made:
        for name, (keys, matrix_VE) in vectors.items():
            np.save(made / f"{name}.npy", matrix_VE)
            (made / f"{name}.tsv").write_text("".join(f"{key}\n" for key in keys), encoding="utf-8")
        (made / _README).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def write_faiss(path: str | Path, users_UE: np.ndarray, items_VE: np.ndarray) -> float:
    """Writes an HNSW index of items by inner product, numbered as in items.tsv, for Faiss.

    Gives the share of the 20 best items, of a sample of users, that a search in it finds.
    UsageError without Faiss.
    """
    logging.getLogger("faiss.loader").setLevel(logging.WARNING)  # which tells what it tries
    try:
        import faiss
    except ImportError as error:
        raise UsageError("--format=faiss needs Faiss; pip install faiss-cpu") from error
    index = faiss.IndexHNSWFlat(items_VE.shape[1], _LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = index.hnsw.efSearch = _CANDIDATES
    index.add(items_VE)
    # Faiss itself writes through C, whose last buffer a full disk loses without an error.
    with replacing(path) as temporary, open(temporary, "wb") as file:
        faiss.write_index(index, faiss.PyCallbackIOWriter(file.write))
    asked_NE = users_UE[:: max(1, len(users_UE) // _SAMPLE)]
    k = min(_TOP, len(items_VE))
    _, found_NK = index.search(asked_NE, k)
    # User by user, as the scores of all items by all of them may not fit in memory.
    best_NK = (np.argpartition(-(items_VE @ user_E), k - 1)[:k] for user_E in asked_NE)
    shared = [len(np.intersect1d(*rows)) for rows in zip(found_NK, best_NK, strict=True)]
    return float(np.mean(shared)) / k
