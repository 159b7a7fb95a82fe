"""Run a model in closed form for the benchmark `recommend`, as a program of its own.

Both models score by a matrix of items and items: EASE (Steck 2019), and the cosine of two items,
which are columns of the matrix of users and items.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ...errors import UsageError
from ...system import host_memory
from ..harness import programs

_BLOCK = 1024  # users whose items are ranked at a time
_MATRICES = {"ease": 4, "cosine": 1}  # dense matrices of items and items, (V, V) float32, in memory


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Solve for a model, and save the best items of all users as ids.npy, (U, k) int32.

    Args:
        job: `model` (ease or cosine), `pairs` (.npz of `users`, `items` and the `shape` of their
            matrix), `regularization` (of EASE), `k` and `folder`.

    Returns:
        `train_seconds` (of the matrix of items) and `pairs` (their number).

    Raises:
        UsageError: The dense matrices do not fit in memory.
        ImportError: scipy is not installed.
    """
    import scipy.sparse  # comes with implicit

    with np.load(job["pairs"]) as pairs:
        ones = np.ones(len(pairs["users"]), np.float32)
        ids = pairs["users"], pairs["items"]
        matrix = scipy.sparse.csr_matrix((ones, ids), shape=pairs["shape"])
    items = matrix.shape[1]
    _check_memory(job["model"], items, host_memory.free_bytes())
    clock = time.perf_counter()
    gram_VV = (matrix.T @ matrix).toarray()
    solve = {
        "ease": lambda: ease(gram_VV, job["regularization"]),
        "cosine": lambda: cosine(gram_VV),
    }
    weights_VV = solve[job["model"]]()
    train_seconds = time.perf_counter() - clock
    np.save(f"{job['folder']}/ids.npy", _best(matrix, weights_VV, min(job["k"], items)))
    return {"train_seconds": train_seconds, "pairs": matrix.nnz}


def ease(gram_VV: np.ndarray, regularization: float) -> np.ndarray:
    """Return the weights of EASE (Steck 2019, equation 8), (V, V) float32.

    They are B = I - P / diag(P) with P = (G + regularization I)^-1. The diagonal of B is 0.
    `gram_VV` is overwritten.

    Args:
        gram_VV: G, the number of users that two items share, float32.
        regularization: The L2 penalty.
    """
    from scipy.linalg import lapack

    gram_VV[np.diag_indices_from(gram_VV)] += regularization
    factor_VV, failed = lapack.spotrf(gram_VV.T, lower=1, overwrite_a=1)
    inverse_VV, failed = (factor_VV, failed) if failed else lapack.spotri(factor_VV, 1, 1)
    if failed:
        raise UsageError("EASE: the matrix has no inverse in float32; give more regularization")
    inverse_VV = np.tril(inverse_VV)
    inverse_VV += np.tril(inverse_VV, -1).T
    inverse_VV /= -np.diag(inverse_VV).copy()
    np.fill_diagonal(inverse_VV, 0)
    return inverse_VV


def cosine(gram_VV: np.ndarray) -> np.ndarray:
    """Return the cosine of every two items, 0 for an item and itself; `gram_VV` is overwritten.

    Args:
        gram_VV: The number of users that two items share, float32.
    """
    root_V = np.sqrt(np.diag(gram_VV))
    gram_VV /= root_V
    gram_VV /= root_V[:, np.newaxis]
    np.fill_diagonal(gram_VV, 0)
    return gram_VV


def _check_memory(model: str, items: int, free: int) -> None:
    """Raise UsageError if the dense matrices of a model need more than the free bytes."""
    needed = _MATRICES[model] * 4 * items**2
    if needed > free:
        raise UsageError(
            f"--peers: {model} needs {needed / 1e9:,.1f} GB for {items:,} items, and "
            f"{free / 1e9:,.1f} GB are free; leave it out"
        )


def _best(matrix: Any, weights_VV: np.ndarray, k: int) -> np.ndarray:
    """Return the k items of the largest scores for each user, (U, k) int32, without its own."""
    blocks = []
    for start in range(0, matrix.shape[0], _BLOCK):
        known = matrix[start : start + _BLOCK]
        scores_MV = known @ weights_VV
        scores_MV[known.nonzero()] = -np.inf
        ids_MK = np.argpartition(-scores_MV, k - 1, axis=1)[:, :k]
        order_MK = np.argsort(-np.take_along_axis(scores_MV, ids_MK, axis=1), axis=1, kind="stable")
        best_MK = np.take_along_axis(ids_MK, order_MK, axis=1)
        is_known_MK = np.isneginf(np.take_along_axis(scores_MV, best_MK, axis=1))
        blocks.append(np.where(is_known_MK, -1, best_MK).astype(np.int32))
    return np.concatenate(blocks)


if __name__ == "__main__":
    programs.answer(measure)
