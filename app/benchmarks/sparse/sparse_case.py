"""One step of a large embedding table, row by row: ours beside Keras and a gather by hand.

The case is that of keras issue 4365 (2016): 793,471 x 512, 128 x 20 random ids, mean squared error.
For each optimizer there are these sides, each run in a process of its own, one at a time:

- table: our step on a table, as the trainer makes it;
- fit: `app.keras` in keras.fit;
- hand: a gather, formula and scatter written by hand in TensorFlow (`sparse_by_hand`);
- keras, keras_jit: stock Keras in keras.fit, as it is by default and with jit_compile=True.

Of each side is measured:

- ms a step: the median over blocks of steps, without compilation and the first touch of memory. A
  block of keras.fit is an epoch, with all that Keras does about it;
- peak memory: the most that the process had resident; that less the table and its slots; and that
  less the peak of a process that only imports Keras. Where there is a GPU the peak above table and
  slots is that of the memory of the GPU.

Then the time of our step on a table (lazy Adam, 128 columns) as the rows become more.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from pathlib import Path
from typing import Any

from ... import __name__ as PACKAGE
from ...errors import UsageError
from ...system import host_memory
from ..harness import child_processes, machine, trials
from ..harness.options import SparseOptions, chosen, numbers
from ..harness.report import Report
from . import sparse_report
from .sparse_report import OURS, TITLES, Job, Result

# Optimizer -> side -> how many times the size of the table the side holds at its peak: for ours and
# by hand table and slots, for Keras measured by this case (TensorFlow 2.21.0, Keras 3.15.1, two
# cores). A side that does not have the optimizer is not there.
HELD: dict[str, dict[str, float]] = {
    "sgd": {"table": 1, "fit": 1, "hand": 1, "keras": 3, "keras_jit": 3},
    "momentum": {"table": 2, "fit": 2, "hand": 2, "keras": 4, "keras_jit": 3},
    "adagrad": {"table": 2, "fit": 2, "hand": 2, "keras": 3.4, "keras_jit": 5.4},
    "rowwise_adagrad": {"table": 1, "fit": 1, "hand": 1},
    "ftrl": {"table": 2, "hand": 3, "keras": 9, "keras_jit": 6},
    "lazy_adam": {"table": 3, "fit": 3, "hand": 3, "keras": 6, "keras_jit": 7.1},
    "lazy_adamw": {"table": 3, "fit": 3, "hand": 3, "keras": 6, "keras_jit": 7.1},
}
# What every process takes beside tables, measured likewise: TensorFlow, compiled code, batches.
_BESIDE_BYTES = 1.3e9
# Such that 8 million rows with the two slots of Adam take 12 GB, about what Keras' Adam takes.
_GROWING = ("lazy_adam", 128)


def run(options: SparseOptions) -> Report:
    """Runs every side `options.repeats` times and reports.

    A side for which memory does not suffice is left out, and the report says so. UsageError for an
    optimizer, a peer or a size that cannot be; RunError when a side fails.
    """
    compared, growing = _jobs(options)
    described = machine.describe(["tensorflow", "keras", "numpy"])
    bare = child_processes.importing("keras")
    jobs = {job.name: job for job in [*compared, *growing]}

    def run_one(name: str, repeat: int) -> dict[str, Any]:
        lacking = None if described["accelerators"] else _lacking(jobs[name])
        return {"left_out": lacking} if lacking else _measured(jobs[name], repeat + 1, bare)

    runs = trials.alternate(list(jobs), options.repeats, run_one)
    results = {name: Result.of(job, runs[name]) for name, job in jobs.items()}
    found = [results[job.name] for job in compared], [results[job.name] for job in growing]
    record = {
        "case": "sparse",
        "machine": described,
        "settings": _settings(options),
        "imports": bare._asdict(),
        "compared": [result.record() for result in found[0]],
        "ratios": sparse_report.ratios(found[0]),
        "growing": [result.record() for result in found[1]],
        "growth": sparse_report.growth(found[1]),
    }
    return Report(_title(options), record, sparse_report.text(*found), sparse_report.panels(*found))


def _settings(options: SparseOptions) -> dict[str, Any]:
    """What was measured, and not where the results went."""
    settings = dataclasses.asdict(options)
    return {name: value for name, value in settings.items() if name not in ("json", "plot")}


def _jobs(options: SparseOptions) -> tuple[list[Job], list[Job]]:
    """Those to compare, and those of a table that grows."""
    optimizers = chosen("optimizers", options.optimizers, HELD, "optimizer")
    known = [side for side in TITLES if side not in OURS]
    peers = chosen("peers", options.peers, known, "peer of sparse")
    sizes = numbers("vocabularies", options.vocabularies, "rows")
    if not optimizers and not sizes:
        raise UsageError("--optimizers= and --vocabularies= are empty; give one of them")
    compared = [
        Job(optimizer, side, options.rows, options.dim, options.steps)
        for optimizer in optimizers
        for side in TITLES
        if side in HELD[optimizer] and side in (*OURS, *peers)
    ]
    optimizer, dim = _GROWING
    growing = [Job(optimizer, "table", rows, dim, options.steps) for rows in sizes]
    return compared, growing


def _lacking(job: Job) -> str | None:
    """Why the side cannot run, if there is not enough memory for it now."""
    needed = HELD[job.optimizer][job.side] * job.rows * job.dim * 4 + _BESIDE_BYTES
    free = host_memory.free_bytes()
    return f"needs {needed / 1e9:.1f} GB, {free / 1e9:.1f} are free" if needed > free else None


def _measured(job: Job, seed: int, bare: child_processes.Usage) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="lexrow-bench-") as folder:
        result = Path(folder) / "result.json"
        spec = json.dumps(job._asdict() | {"seed": seed, "result": str(result)})
        arguments = ["-m", f"{PACKAGE}.benchmarks.sparse.sparse_sides", spec]
        usage = child_processes.run(job.name, arguments, Path(folder) / "log")
        values = json.loads(result.read_text(encoding="utf-8"))
    if "left_out" in values:
        return values
    peak = usage.peak_bytes
    return values | {
        "peak_bytes": peak,
        "above_table_bytes": (values["device_peak_bytes"] or peak) - values["table_bytes"],
        "above_import_bytes": peak - bare.peak_bytes,
    }


def _title(options: SparseOptions) -> str:
    runs = f"medians of {options.repeats} runs" if options.repeats > 1 else "one run"
    return f"One step of a table, {options.rows:,} x {options.dim}, 128 x 20 ids; {runs} a side"
