"""Run implicit's side of the benchmark `recommend`, as a program of its own.

The models are alternating least squares (ALS) and Bayesian personalized ranking (BPR).
"""

from __future__ import annotations

import os
import time
from typing import Any

from ..harness import programs


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Train a model of implicit, and save its factors as users.npy and items.npy.

    It sets OPENBLAS_NUM_THREADS=1 in the environment of this process.

    Args:
        job: `model` (als or bpr), `pairs` (.npz of `users`, `items` and the `shape` of their
            matrix), `settings` (of the model) and `folder`.

    Returns:
        `train_seconds` (of `fit`) and `pairs` (their number x iterations).

    Raises:
        ImportError: implicit is not installed.
    """
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # implicit asks for this before OpenBLAS is loaded
    import numpy as np
    import scipy.sparse
    from implicit.als import AlternatingLeastSquares  # optional
    from implicit.bpr import BayesianPersonalizedRanking

    models = {"als": AlternatingLeastSquares, "bpr": BayesianPersonalizedRanking}
    with np.load(job["pairs"]) as pairs:
        ones = np.ones(len(pairs["users"]), np.float32)
        ids = pairs["users"], pairs["items"]
        matrix = scipy.sparse.csr_matrix((ones, ids), shape=pairs["shape"])
    model = models[job["model"]](**job["settings"])
    clock = time.perf_counter()
    model.fit(matrix, show_progress=False)
    train_seconds = time.perf_counter() - clock
    np.save(f"{job['folder']}/users.npy", model.user_factors)
    np.save(f"{job['folder']}/items.npy", model.item_factors)
    return {"train_seconds": train_seconds, "pairs": matrix.nnz * model.iterations}


if __name__ == "__main__":
    programs.answer(measure)
