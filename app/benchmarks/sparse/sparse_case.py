"""Compare one step of a large embedding table, row by row: Lexrow, Keras and code by hand.

The case is from keras issue 4365 (2016): 793,471 x 512, 128 x 20 random ids, mean squared error.
Each side is a process of its own, one at a time:

- table: the trainer's step on a table of Lexrow;
- fit: `lexrow.keras` in keras.fit;
- hand: a gather, a formula and a scatter in plain TensorFlow (`sparse_by_hand`);
- keras, keras_jit: stock Keras in keras.fit, by default and with jit_compile=True;
- dense: plain TensorFlow, with a gradient and an update as large as the table.

The figures of a side:

- ms a step: the median over blocks of steps, without compilation and the first use of memory. A
  block of keras.fit is an epoch, with all that Keras does for it;
- peak memory: the most resident memory of the process; the same without the table and its slots;
  and without the peak of a process that only imports Keras. On a GPU, the peak above table and
  slots counts the memory of the GPU.

A further table has the time of Lexrow's step (lazy Adam, 128 columns) as the rows grow in number.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...errors import UsageError
from ...system.processes import Usage
from ..harness import machine, programs, report, trials
from ..harness.option_values import chosen, numbers
from ..harness.options import SparseOptions
from ..harness.report import Measure, Panel, Result, Row, Table

STEP = Measure("step_ms", "ms a step", ",.1f", better="lower", drawn=True)
MEASURES = (
    STEP,
    Measure("peak_bytes", "peak, GB", ",.2f", per=1e9, better="lower"),
    Measure("table_bytes", "table and slots", ",.2f", per=1e9),
    Measure("above_table_bytes", "above them, GB", ",.2f", per=1e9, better="lower"),
    Measure("above_import_bytes", "above the import", ",.2f", per=1e9, better="lower"),
)
TITLES = {
    "table": "Lexrow, on a table",
    "fit": "Lexrow, in fit",
    "hand": "by hand",
    "keras": "Keras",
    "keras_jit": "Keras, jit",
    "dense": "TensorFlow, dense",
}
OURS = ("table", "fit")
_RATIOS = (("keras", "fit"), ("keras_jit", "fit"), ("table", "hand"))
# Optimizer -> side -> peak memory of the side as a multiple of the table. Lexrow and the code by
# hand have table and slots; the others were measured by this case (TensorFlow 2.21.0, Keras 3.15.1,
# two cores). Sides without the optimizer are absent.
HELD: dict[str, dict[str, float]] = {
    "sgd": {"table": 1, "fit": 1, "hand": 1, "keras": 3, "keras_jit": 3},
    "momentum": {"table": 2, "fit": 2, "hand": 2, "keras": 4, "keras_jit": 3},
    "adagrad": {"table": 2, "fit": 2, "hand": 2, "keras": 3.4, "keras_jit": 5.4},
    "rowwise_adagrad": {"table": 1, "fit": 1, "hand": 1},
    "ftrl": {"table": 2, "hand": 3, "keras": 9, "keras_jit": 6},
    "lazy_adam": {"table": 3, "fit": 3, "hand": 3, "keras": 6, "keras_jit": 7.1, "dense": 5.5},
    "lazy_adamw": {"table": 3, "fit": 3, "hand": 3, "keras": 6, "keras_jit": 7.1},
}
# Memory of every process beside the table, measured likewise: TensorFlow, compiled code, batches.
_BESIDE_BYTES = 1.3e9
# With two slots of Adam, 8 million rows take 12 GB, about as much as Keras's Adam above.
_GROWING = ("lazy_adam", 128)


class Job(NamedTuple):
    """One side of one optimizer.

    Attributes:
        optimizer: The optimizer.
        side: The side.
        rows: Rows of the table.
        dim: Columns of the table.
        steps: The most steps of a timed block.
        batch: The shape of the ids of a step; by default the shape in keras issue 4365.
    """

    optimizer: str
    side: str
    rows: int
    dim: int
    steps: int
    batch: tuple[int, int] = (128, 20)

    @property
    def name(self) -> str:
        """The name for messages."""
        return f"{self.optimizer}, {TITLES[self.side]}, {self.rows:,} x {self.dim}"

    @property
    def needed_bytes(self) -> float:
        """The expected peak memory of the process in bytes, from `HELD`."""
        return HELD[self.optimizer][self.side] * self.rows * self.dim * 4 + _BESIDE_BYTES


def run(options: SparseOptions) -> Result:
    """Run every side `options.repeats` times, but those for which the memory is too small.

    Args:
        options: The settings of the case.

    Raises:
        UsageError: An optimizer, a peer or a size is not possible, or nothing is to be measured.
        RunError: A side failed.
    """
    compared, growing = _make_jobs(options)
    described = machine.describe(["tensorflow", "keras", "numpy"])
    bare = programs.import_usage("import keras")
    jobs = {job.name: job for job in [*compared, *growing]}
    on_gpu = bool(described["accelerators"])
    runs = trials.run_jobs(
        jobs,
        options.repeats,
        lambda job: None if on_gpu else machine.missing_memory(job.needed_bytes),
        lambda job, seed: measure(job, seed, bare),
    )
    by_optimizer: dict[str, dict[str, Row]] = {job.optimizer: {} for job in compared}
    for job in compared:
        row = report.make_row(TITLES[job.side], runs[job.name], MEASURES, job._asdict())
        by_optimizer[job.optimizer][job.side] = row
    tables = [_compare_sides(name, sides) for name, sides in by_optimizer.items()]
    panels: list[Panel] = []
    for table in tables:
        ours = sum(row.job["side"] in OURS for row in table.rows)
        panels += report.make_panels(table, f"{table.title}: {{}}", ours, log=True)
    rows = [
        report.make_row(f"{job.rows:,} rows", runs[job.name], MEASURES, job._asdict())
        for job in growing
    ]
    growth = [("largest : smallest", rows[-1], rows[0])] if len(rows) > 1 else []
    if rows:
        optimizer, dim = _GROWING
        title = f"Lexrow, {optimizer} on a table, {dim} columns"
        tables.append(Table(title, MEASURES, rows, growth))
        panels += report.make_panels(tables[-1], f"Lexrow, {dim} columns: {{}}", len(rows))
    figures = {
        "imports": bare._asdict(),
        "compared": [r.record for sides in by_optimizer.values() for r in sides.values()],
        "ratios": {name: _ratios(sides) for name, sides in by_optimizer.items()},
        "growing": [row.record for row in rows],
        "growth": report.ratio(STEP, *growth[0][1:]) if growth else None,
    }
    title = f"One step of a table, {options.rows:,} x {options.dim}, 128 x 20 ids"
    title += f"; {options.count_runs()} a side"
    return Result("sparse", title, described, options.measured(), tables, figures, panels)


def _make_jobs(options: SparseOptions) -> tuple[list[Job], list[Job]]:
    """Return the jobs that compare sides, and the jobs of Lexrow with more and more rows.

    A side without the optimizer has no job. Raises UsageError for an unknown name, or without
    optimizers and vocabularies.
    """
    optimizers = chosen("optimizers", options.optimizers, HELD, "optimizer")
    known = [side for side in TITLES if side not in OURS]
    peers = chosen("peers", options.peers, known, "peer of sparse")
    sizes = numbers(options.vocabularies)
    if not optimizers and not sizes:
        raise UsageError("--optimizers= and --vocabularies= are empty; give one of them")
    compared = [
        Job(optimizer, side, options.rows, options.dim, options.steps)
        for optimizer in optimizers
        for side in TITLES
        if side in HELD[optimizer] and side in (*OURS, *peers)
    ]
    optimizer, dim = _GROWING
    return compared, [Job(optimizer, "table", rows, dim, options.steps) for rows in sizes]


def measure(job: Job, seed: int, bare: Usage) -> dict[str, Any]:
    """Run a side in its own process; return its figures, or `left_out` if memory is too small.

    Args:
        job: The side.
        seed: The seed of the ids and rows.
        bare: The time and memory of a process that only imports Keras.

    Raises:
        RunError: The side failed.
    """
    values, usage = programs.run(job.name, "sparse.sparse_sides", job._asdict() | {"seed": seed})
    if "left_out" in values:
        return values
    peak = usage.peak_bytes
    return values | {
        "peak_bytes": peak,
        "above_table_bytes": (values["device_peak_bytes"] or peak) - values["table_bytes"],
        "above_import_bytes": peak - bare.peak_bytes,
    }


def _compare_sides(optimizer: str, sides: dict[str, Row]) -> Table:
    """Return the table of an optimizer, with the pairs of `_RATIOS` for which both sides exist."""
    compared = [
        (f"{TITLES[one]} : {TITLES[other]}", sides[one], sides[other])
        for one, other in _RATIOS
        if {one, other} <= sides.keys()
    ]
    return Table(optimizer, MEASURES, list(sides.values()), compared)


def _ratios(sides: dict[str, Row]) -> dict[str, float]:
    """Return by `side / side` the ratio of the median ms a step, for the pairs of `_RATIOS`.

    A pair without a median of both sides is left out.
    """
    return {
        f"{one} / {other}": ratio
        for one, other in _RATIOS
        if (ratio := report.ratio(STEP, sides.get(one), sides.get(other)))
    }
