"""Compare recommenders in keras.fit with Adam: tables of each kind, stock Keras and keras-rs.

Two models are trained, each side of them in a process of its own, one at a time:

- two_tower: a tower for users and a tower for items, and a softmax over the items of the batch;
- dlrm: tables of very different sizes, one of which gives the mean of several rows, dense features,
  and the inner products of all pairs of vectors (see `keras_models`).

Ids are drawn by Zipf's law. All batches are drawn before the training begins, and the pipeline of
tf.data only takes slices of arrays in memory, so that no side waits for it.

The sides of Lexrow are the kinds of table of `RowEmbedding`, `DynamicEmbedding`, and the kind
`device` with jit_compile. `_cache` stands for a cache on the device, filled by `prefetch_rows`.
Without a GPU, `sharded` has two logical devices of the processor. These sides have `LazyAdam` as
optimizer, the peers have Adam of Keras. keras-rs (`EmbedReduce`) accelerates nothing but on TPUs.

The figures of a side:

- steps a second, and ms a step: the median over blocks of steps, without compilation and the first
  use of memory. A block is an epoch, with all that Keras does for it;
- peak memory: the most resident memory of the process, with the code of TensorFlow and, of a table
  in a file, with the parts that the system holds in memory as long as there is room;
- without files: the same without both of them, read every 0.02 s;
- table and slots: the rows and both moments, of a dynamic table of the rows in use only;
- above them: the peak memory without table and slots. Caches are in it;
- on a GPU, the peak of its memory.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from ...errors import UsageError
from ...system.files import temporary_folder
from ..harness import machine, programs, report, trials
from ..harness.keras_options import KerasOptions
from ..harness.option_values import chosen, numbers
from ..harness.report import Measure, Result, Row, Table
from .keras_job import OURS, PEERS, Job, TableSize

SPEED = Measure("steps_per_s", "steps/s", ",.1f", better="higher", drawn=True)
MEASURES = (
    SPEED,
    Measure("step_ms", "ms a step", ",.1f", better="lower"),
    Measure("peak_bytes", "peak, GB", ",.2f", per=1e9, better="lower", drawn=True),
    Measure("own_peak_bytes", "without files", ",.2f", per=1e9, better="lower"),
    Measure("state_bytes", "table and slots", ",.2f", per=1e9),
    Measure("above_bytes", "above them, GB", ",.2f", per=1e9, better="lower"),
    Measure("device_peak_bytes", "of the GPU", ",.2f", per=1e9, better="lower"),
)
MODELS = {"two_tower": "Two towers", "dlrm": "DLRM"}
# Ratios of a side to peers, computed from the medians.
_RATIOS = {
    "keras": Measure("speed_of_keras", ": Keras", ",.1f"),
    "keras_jit": Measure("speed_of_keras_jit", ": Keras, jit", ",.1f"),
}
# A table of the DLRM with more rows has fewer columns, as in Ginart et al. 2019.
_LARGE_ROWS, _COLUMNS, _LARGE_COLUMNS = 1_000_000, 32, 16
_SEVERAL_IDS = 20  # of an example, in one table of the DLRM
# Peak memory as a multiple of the tables with their moments, measured by `sparse` for one table.
_HELD = {"keras": 2.0, "keras_jit": 2.4, "keras_rs": 2.0}
_BESIDE_BYTES = 1.3e9  # memory of every process beside the tables


def run(options: KerasOptions) -> Result:
    """Run every side `options.repeats` times, but those that lack memory or their library.

    Args:
        options: The settings of the case.

    Raises:
        UsageError: A setting is not possible, or there is nothing to measure.
        RunError: A side failed.
    """
    jobs = {f"{job.model}, {job.title}": job for job in _make_jobs(options)}
    peers = ["keras-rs"] if _has_keras_rs() else []
    described = machine.describe(["tensorflow", "keras", "numpy", *peers])
    on_gpu = bool(described["accelerators"])
    runs = trials.run_jobs(
        jobs,
        options.repeats,
        lambda job: _reason_against(job, on_gpu),
        lambda job, seed: _measure(job, seed, options.folder),
    )
    by_model: dict[str, dict[str, Row]] = {}
    for name, job in jobs.items():
        row = report.make_row(job.title, runs[name], MEASURES, job._asdict())
        by_model.setdefault(job.model, {})[job.side] = row
    figures: dict[str, Any] = {
        "sides": [
            row.record | {"title": row.name} for rows in by_model.values() for row in rows.values()
        ],
        "ratios": {model: _ratios(rows) for model, rows in by_model.items()},
    }
    tables, panels = [], []
    for model, by_side in by_model.items():
        ratios = figures["ratios"][model]
        rows = [row._replace(median=row.median | ratios[side]) for side, row in by_side.items()]
        title = f"{MODELS[model]}, tables of {_sizes(rows[0].job['tables'])}"
        tables.append(Table(title, (*MEASURES, *_RATIOS.values()), rows))
        ours = sum(side in OURS for side in by_side)
        panels += report.make_panels(tables[-1], f"{MODELS[model]}: {{}}", ours)
    title = f"keras.fit with Adam, {options.batch:,} examples a step by Zipf's law"
    title += f"; {options.count_runs()} a side"
    return Result("keras", title, described, options.measured(), tables, figures, panels)


def _make_jobs(options: KerasOptions) -> list[Job]:
    """Return a job for each model and side; raise UsageError if there is none."""
    models = chosen("models", options.models, MODELS, "model of keras")
    sides = chosen("sides", options.sides, OURS, "side of keras")
    sides += chosen("peers", options.peers, PEERS, "peer of keras")
    users = TableSize("users", options.users, options.dim)
    items = TableSize("items", options.items, options.dim)
    sizes = numbers(options.table_rows)
    features = [
        TableSize(
            f"feature_{number}",
            rows,
            _COLUMNS if rows < _LARGE_ROWS else _LARGE_COLUMNS,
            _SEVERAL_IDS if number == len(sizes) // 2 else 1,
        )
        for number, rows in enumerate(sizes)
    ]
    tables = {"two_tower": [users, items], "dlrm": features}
    if not models or not sides:
        raise UsageError("--models, --sides and --peers leave nothing to measure; give more")
    return [
        Job(model, side, tables[model], options.batch, options.steps, options.hot_share)
        for model in models
        for side in sides
    ]


def _reason_against(job: Job, on_gpu: bool) -> str | None:
    """Return why a side cannot run here, or None; the memory is not checked on a GPU."""
    if job.side == "keras_rs" and not _has_keras_rs():
        return "keras-rs is not installed; pip install keras-rs"
    return None if on_gpu else machine.missing_memory(_needed_bytes(job))


def _has_keras_rs() -> bool:
    return importlib.util.find_spec("keras_rs") is not None


def _needed_bytes(job: Job) -> float:
    """Return the expected memory of the process; rows in a file do not count."""
    held = 0.0 if job.side in ("file", "file_cache") else _HELD.get(job.side, 1.0)
    return held * job.state_bytes + job.cache_bytes + _BESIDE_BYTES


def _measure(job: Job, seed: int, parent: str) -> dict[str, Any]:
    """Run a side in its own process; return its figures, or the reason as `left_out`.

    Tables in files are in a temporary folder below `parent`, or in the usual place if it is empty.
    """
    with temporary_folder("lexrow-benchmark-", parent or None) as folder:
        spec = job._asdict() | {"seed": seed, "folder": folder}
        values, usage = programs.run(f"{job.model}, {job.title}", "keras.keras_sides", spec)
    if "left_out" in values:
        return values
    on_gpu = values["device_peak_bytes"] is not None
    return values | {
        "steps_per_s": 1000 / values["step_ms"],
        "peak_bytes": usage.peak_bytes,
        "above_bytes": None if on_gpu else usage.peak_bytes - values["state_bytes"],
    }


def _ratios(rows: dict[str, Row]) -> dict[str, dict[str, float | None]]:
    """Return by side its speed over the speeds of stock Keras; None if either is unknown."""
    return {
        side: {
            measure.key: report.ratio(SPEED, row, rows.get(peer))
            for peer, measure in _RATIOS.items()
        }
        for side, row in rows.items()
    }


def _sizes(tables: list[TableSize]) -> str:
    """Return the sizes of tables for a title."""
    return ", ".join(f"{table.rows:,} x {table.columns}" for table in tables)
