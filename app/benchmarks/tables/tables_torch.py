"""The side of `tables` with torch: python -m app.benchmarks.tables.tables_torch JOB

A program of its own, as torch and TensorFlow cannot always be in one process: both bring LLVM.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import numpy as np

from . import tables_measure
from .tables_measure import LIMIT, RATE, Case, Side


def embedding(case: Case) -> Side:
    """nn.Embedding(sparse=True) and SparseAdam, as they come."""
    import torch  # optional

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    table = torch.nn.Embedding(case.job.rows, case.job.dim, sparse=True, device=device)
    torch.nn.init.uniform_(table.weight, -LIMIT, LIMIT)
    optimizer = torch.optim.SparseAdam(list(table.parameters()), lr=RATE)
    target_D = torch.from_numpy(case.target_D).to(device)

    def step(ids_N: np.ndarray) -> torch.Tensor:
        optimizer.zero_grad()
        vectors_ND = table(torch.from_numpy(ids_N).to(device))
        loss = torch.sum((vectors_ND - target_D) ** 2) / 2
        loss.backward()
        optimizer.step()
        return loss.detach()

    def calls() -> Iterator[torch.Tensor]:
        for ids_SN in case.ids_CSN:
            yield [step(ids_N) for ids_N in ids_SN][0]

    def told() -> dict[str, float]:
        if device.type == "cpu":
            return {}
        return {"device_peak_bytes": torch.cuda.max_memory_allocated()}

    return Side(calls(), told)


if __name__ == "__main__":
    tables_measure.main({"torch": embedding}, json.loads(sys.argv[1]), ImportError)
