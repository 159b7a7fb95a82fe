"""Run the side of `tables` with torch, as a program of its own.

torch and TensorFlow cannot always be in one process, since both load LLVM.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..harness import programs
from . import tables_measure
from .tables_measure import LIMIT, RATE, Case, Side


def embedding(case: Case) -> Side:
    """Return the side of nn.Embedding(sparse=True) and SparseAdam, on the GPU if torch sees one.

    Whatever the job's optimizer, the side uses SparseAdam. The seed of the case is not used for the
    initial rows. On a CPU the side has no figures of its own.

    Args:
        case: The data.

    Raises:
        ImportError: torch is not installed.
    """
    import torch  # optional

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    table = torch.nn.Embedding(case.job.rows, case.job.dim, sparse=True, device=device)
    torch.nn.init.uniform_(table.weight, -LIMIT, LIMIT)
    optimizer = torch.optim.SparseAdam(list(table.parameters()), lr=RATE)
    target_D = torch.from_numpy(case.target_D).to(device)

    def step(ids_N: np.ndarray) -> torch.Tensor:
        """Train the rows of the ids, and return half the sum of squared differences before."""
        optimizer.zero_grad()
        vectors_ND = table(torch.from_numpy(ids_N).to(device))
        loss = torch.sum((vectors_ND - target_D) ** 2) / 2
        loss.backward()
        optimizer.step()
        return loss.detach()

    def calls() -> Iterator[torch.Tensor]:
        """Train a call, step by step, and yield the loss of its first step."""
        for ids_SN in case.ids_CSN:
            yield [step(ids_N) for ids_N in ids_SN][0]

    def values() -> dict[str, float]:
        """Return `device_peak_bytes` of the whole process on a GPU, else an empty dictionary."""
        if device.type == "cpu":
            return {}
        return {"device_peak_bytes": torch.cuda.max_memory_allocated()}

    return Side(calls(), values)


def main() -> None:
    """Run the side as a program; without torch the only figure is `left_out` (see `answer`)."""
    sides = {"torch": embedding}
    programs.answer(lambda job: tables_measure.measure(sides, job), (ImportError,))


if __name__ == "__main__":
    main()
