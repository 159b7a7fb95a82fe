"""What every side of `tables` gets, and how it is measured; imports no library of any side."""

from __future__ import annotations

import contextlib
import json
import math
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...errors import RunError
from ...system import host_memory
from .tables_case import STEPS, Job

RATE = 0.01  # the speed of no side depends on it
LIMIT = 0.05  # of the numbers of initial rows

_BLOCKS = 5
_SAMPLE_SECONDS = 0.02  # between two looks at the memory taken


class Case(NamedTuple):
    """ids_CSN: int32, of each call its steps. target_D: float32. folder: for files."""

    job: Job
    ids_CSN: np.ndarray
    target_D: np.ndarray
    seed: int
    folder: str


class Side(NamedTuple):
    """A side at work.

    calls: makes the steps of the next call, and gives the loss of the first one, which is a number
    once that is known. told: by name, what it knows of the time since it was last asked:
    `stage_hit_rate`, `staged_bytes`, `stage_stall` (see `training.prefetch.Prefetcher.values`) and
    `device_peak_bytes`, the most memory of a GPU; what it does not know is not there.
    """

    calls: Iterator[Any]
    told: Callable[[], dict[str, float]]


def main(
    sides: Mapping[str, Callable[[Case], Side]], spec: dict[str, Any], lacking: type[Exception]
) -> None:
    """Measures one of the sides, and writes what it measured.

    spec: the fields of a `Job`, `seed`, `folder` (for a table in a file) and `result` (JSON, to
    write): `steps_per_s` (the median over blocks), `blocks_per_s`, `rows_per_s` (distinct ones),
    `peak_bytes` (the most memory, without mapped files, above what was taken before there was a
    table) and what `Side.told` tells; or `left_out`, the reason, where it raises `lacking`.
    """
    result, seed, folder = (spec.pop(name) for name in ("result", "seed", "folder"))
    job = Job(**spec)
    try:
        values = _measured(job, sides[job.side], seed, folder)
    except lacking as error:
        values = {"left_out": str(error).splitlines()[0]}
    Path(result).write_text(json.dumps(values), encoding="utf-8")


def _measured(job: Job, make: Callable[[Case], Side], seed: int, folder: str) -> dict[str, Any]:
    calls = job.steps // STEPS
    case = make_case(job, (1 + _BLOCKS) * calls, seed, folder)
    with _peak_bytes() as peak:
        side = make(case)
        first = float(next(side.calls))
        _block(side, calls - 1)  # compiles, and touches memory for the first time
        side.told()
        blocks, losses = zip(*(_block(side, calls) for _ in range(_BLOCKS)), strict=True)
        told = side.told()
    if not losses[-1] < first:
        raise RunError(f"{job.title}: the loss went from {first} to {losses[-1]}, not down")
    distinct = [len(np.unique(ids_N)) for ids_SN in case.ids_CSN[calls:] for ids_N in ids_SN]
    blocks_per_s = [job.steps / seconds for seconds in blocks]
    steps_per_s = statistics.median(blocks_per_s)
    return {
        "steps_per_s": steps_per_s,
        "blocks_per_s": blocks_per_s,
        "rows_per_s": steps_per_s * statistics.mean(distinct),
        "peak_bytes": peak(),
        **told,
    }


def make_case(job: Job, calls: int, seed: int, folder: str) -> Case:
    """Ids by Zipf's law: id k in proportion to 1 / (k + 1)."""
    random = np.random.default_rng(seed)
    cumulative_V = np.cumsum(1 / np.arange(1, job.rows + 1))
    drawn_CSN = random.random((calls, STEPS, job.ids)) * cumulative_V[-1]
    ids_CSN = np.searchsorted(cumulative_V[:-1], drawn_CSN, side="right").astype(np.int32)
    target_D = random.random(job.dim, dtype=np.float32)
    return Case(job, ids_CSN, target_D, seed, folder)


def _block(side: Side, calls: int) -> tuple[float, float]:
    """The seconds that the steps of some calls take, and the last loss."""
    start, loss = time.perf_counter(), math.nan
    for _ in range(calls):
        loss = next(side.calls)
    loss = float(loss)  # waits for the device
    return time.perf_counter() - start, loss


@contextlib.contextmanager
def _peak_bytes() -> Iterator[Callable[[], int]]:
    """Gives what gives the most memory taken within the block, above that at its start."""
    before = most = host_memory.resident_bytes()
    ended = threading.Event()

    def watch() -> None:
        nonlocal most
        while not ended.wait(_SAMPLE_SECONDS):
            most = max(most, host_memory.resident_bytes())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield lambda: most - before
    finally:
        ended.set()
        thread.join()
