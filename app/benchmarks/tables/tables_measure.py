"""Measure a side of `tables`; this module imports neither TensorFlow nor torch."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from ...errors import RunError
from ...system import host_memory
from ..harness.peak_memory import peak_without_files
from ..harness.zipf import zipf_ids
from .tables_case import STEPS, Job

RATE = 0.01  # the speed of no side depends on the rate
LIMIT = 0.05  # initial values are between -LIMIT and LIMIT

_BLOCKS = 5


class Case(NamedTuple):
    """The data of all sides.

    Attributes:
        job: The side.
        ids_CSN: The ids of each step of each call, int32.
        target_D: The wanted vector of all ids, float32.
        seed: The seed of all random values.
        folder: A folder for files.
    """

    job: Job
    ids_CSN: np.ndarray
    target_D: np.ndarray
    seed: int
    folder: str


class Side(NamedTuple):
    """A side.

    Attributes:
        calls: Trains the next call of `STEPS` steps whenever it is advanced, and yields the loss
            of its first step. `float(loss)` waits for that step.
        values: Returns figures of the time since its last call, as far as the side has them:
            `stage_hit_rate`, `staged_bytes` and `stage_stall` (see `Prefetcher.values`), and
            `device_peak_bytes`, the peak memory of a GPU.
    """

    calls: Iterator[Any]
    values: Callable[[], dict[str, float]]


def measure(sides: Mapping[str, Callable[[Case], Side]], spec: dict[str, Any]) -> dict[str, Any]:
    """Train one side, and measure its speed and memory in five blocks after a first one.

    Args:
        sides: The sides by name.
        spec: The fields of a `Job`, `seed` and `folder` (for a table in a file).

    Returns:
        `steps_per_s` (the median over blocks), `blocks_per_s` (steps/s of each block),
        `rows_per_s` (unique rows), `peak_bytes` (the peak memory without mapped files, less the
        memory before the table was made), and the values of the side.

    Raises:
        RunError: The last loss is not below the first.
    """
    job = Job(**{name: spec[name] for name in Job._fields})
    make, seed, folder = sides[job.side], spec["seed"], spec["folder"]
    calls = job.steps // STEPS
    case = make_case(job, (1 + _BLOCKS) * calls, seed, folder)
    before = host_memory.resident_bytes()
    with peak_without_files() as peak:
        side = make(case)
        first = float(next(side.calls))
        _block(side, calls - 1)  # compiles, and uses memory for the first time
        side.values()
        blocks, losses = zip(*(_block(side, calls) for _ in range(_BLOCKS)), strict=True)
        values = side.values()
    if not losses[-1] < first:
        raise RunError(f"{job.title}: the loss went from {first} to {losses[-1]}, not down")
    unique = [len(np.unique(ids_N)) for ids_SN in case.ids_CSN[calls:] for ids_N in ids_SN]
    blocks_per_s = [job.steps / seconds for seconds in blocks]
    steps_per_s = statistics.median(blocks_per_s)
    return {
        "steps_per_s": steps_per_s,
        "blocks_per_s": blocks_per_s,
        "rows_per_s": steps_per_s * statistics.mean(unique),
        "peak_bytes": peak() - before,
        **values,
    }


def make_case(job: Job, calls: int, seed: int, folder: str) -> Case:
    """Draw the ids of all steps by Zipf's law, id k in proportion to 1 / (k + 1), and a target.

    Args:
        job: The side.
        calls: The number of calls.
        seed: The seed of all random values.
        folder: A folder for files; it is only stored.
    """
    random = np.random.default_rng(seed)
    ids_CSN = zipf_ids(random, job.rows, (calls, STEPS, job.ids))
    target_D = random.random(job.dim, dtype=np.float32)
    return Case(job, ids_CSN, target_D, seed, folder)


def _block(side: Side, calls: int) -> tuple[float, float]:
    """Train some calls; return their seconds and the loss of the last, NaN without calls."""
    start, loss = time.perf_counter(), math.nan
    for _ in range(calls):
        loss = next(side.calls)
    loss = float(loss)  # waits for the device
    return time.perf_counter() - start, loss
