"""Run implicit's side of the benchmark `recommend`, as a program: python -m MODULE JOB

JOB is what it is given: alternating least squares, or Bayesian personalised ranking, as they come.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def main(job: dict[str, Any]) -> None:
    """Trains, and saves the factors, users.npy and items.npy, in a folder.

    job: `model` (als or bpr), `pairs` (.npz of `users`, `items` and the `shape` of their matrix),
    `settings` (of the model), `folder`, and `result` (JSON, to write): `train_seconds` (of `fit`)
    and `pairs` (of all iterations).
    """
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as implicit asks for, before OpenBLAS is loaded
    import numpy as np
    import scipy.sparse
    from implicit.als import AlternatingLeastSquares  # optional
    from implicit.bpr import BayesianPersonalizedRanking

    models = {"als": AlternatingLeastSquares, "bpr": BayesianPersonalizedRanking}
    with np.load(job["pairs"]) as pairs:
        ones = np.ones(len(pairs["users"]), np.float32)
        places = pairs["users"], pairs["items"]
        matrix = scipy.sparse.csr_matrix((ones, places), shape=pairs["shape"])
    model = models[job["model"]](**job["settings"])
    clock = time.perf_counter()
    model.fit(matrix, show_progress=False)
    train_seconds = time.perf_counter() - clock
    np.save(f"{job['folder']}/users.npy", model.user_factors)
    np.save(f"{job['folder']}/items.npy", model.item_factors)
    values = {"train_seconds": train_seconds, "pairs": matrix.nnz * model.iterations}
    Path(job["result"]).write_text(json.dumps(values), encoding="utf-8")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
