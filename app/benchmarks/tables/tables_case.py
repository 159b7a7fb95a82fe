"""Measure steps of a table that is stored in different places, beside peers with a large table.

Every step looks up ids that are drawn by Zipf's law, and trains their rows. Each side is a process
of its own for each optimizer, one at a time:

- device: all rows in the memory of the device;
- host: rows in host memory, with a cache on the device, loaded for chunks of steps;
- disk: the same, with the rows in a file;
- sharded: rows on all GPUs, or on two logical CPU devices;
- dynamic: a row for each key, from its first occurrence;
- bfloat16: as device, with rows and slots in bfloat16, stochastically rounded;
- naive: the table in numpy on the host; the rows of each step are sent to the device and back;
- torch: nn.Embedding(sparse=True) with SparseAdam.

The figures of a side, without compilation and the first use of memory: steps a second, the median
over blocks; the share of the time in which steps wait for rows; the bytes that a step moves to and
from the device; the share of lookups whose row was on the device; and the peak memory above that of
the libraries, without mapped files.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...errors import UsageError
from ...system.files import temporary_folder
from ..harness import machine, programs, report, trials
from ..harness.option_values import chosen, numbers
from ..harness.options import TablesOptions
from ..harness.report import Measure, Result, Row, Table

OURS = ("device", "host", "disk", "sharded", "dynamic", "bfloat16")
PEERS = ("naive", "torch")
SPEED = Measure("steps_per_s", "steps/s", ",.0f", better="higher", drawn=True)
MOVED = Measure("staged_bytes", "MB moved a step", ",.2f", per=1e6, better="lower")
MEMORY = Measure("peak_bytes", "peak, GB", ",.2f", per=1e9, better="lower", drawn=True)
# Ratios of a side to others. Both are computed from the medians.
_OF_DEVICE = Measure("speed_of_device", "speed : device", ".2f")
_OF_NAIVE = Measure("moved_of_naive", "moved : naive", ".2f")
MEASURES = (
    SPEED,
    Measure("rows_per_s", "rows/s", ",.0f", better="higher"),
    Measure("stage_stall", "stall", ".1%", better="lower"),
    MOVED,
    Measure("stage_hit_rate", "hits", ".1%", better="higher"),
    MEMORY,
    Measure("device_peak_bytes", "of the GPU", ",.2f", per=1e9, better="lower"),
)
STEPS = 10  # steps of a call of a compiled function
_DISK_HOT = 10  # percent of the rows in the cache
# Memory of rows with their slots, as a multiple of the rows.
_STATE = {"lazy_adam": 3, "rowwise_adagrad": 1}
_BESIDE_BYTES = 1.3e9  # memory of every process beside the table


class Job(NamedTuple):
    """A side with an optimizer.

    Attributes:
        optimizer: The optimizer.
        side: The side.
        hot: Percent of the rows in the cache on the device; None for a side without a cache.
        rows: Rows of the table.
        dim: Columns of the table.
        ids: Ids of a step, with repetitions.
        steps: Steps of a timed block, whole chunks of `stage_steps`.
        stage_steps: Steps for which rows are loaded together.
    """

    optimizer: str
    side: str
    hot: int | None
    rows: int
    dim: int
    ids: int
    steps: int
    stage_steps: int

    @property
    def title(self) -> str:
        """The name of the side for people."""
        return self.side if self.hot is None else f"{self.side}, {self.hot} % hot"


def run(options: TablesOptions) -> Result:
    """Run every side `options.repeats` times, but those that lack memory or their library.

    Args:
        options: The settings of the case.

    Raises:
        UsageError: A setting is not possible, or there is nothing to measure.
        RunError: A side failed.
    """
    jobs = {f"{job.optimizer}, {job.title}": job for job in _make_jobs(options)}
    described = machine.describe(["tensorflow", "numpy"])
    on_gpu = bool(described["accelerators"])
    runs = trials.run_jobs(
        jobs,
        options.repeats,
        lambda job: None if on_gpu else machine.missing_memory(_needed_bytes(job)),
        lambda job, seed: _measure(job, seed, options.folder),
    )
    by_optimizer: dict[str, dict[str, Row]] = {}
    for name, job in jobs.items():
        row = report.make_row(job.title, runs[name], MEASURES, job._asdict())
        by_optimizer.setdefault(job.optimizer, {})[job.title] = row
    figures: dict[str, Any] = {
        "sides": [
            row.record | {"title": row.name}
            for sides in by_optimizer.values()
            for row in sides.values()
        ],
        "ratios": {name: _ratios(sides) for name, sides in by_optimizer.items()},
    }
    tables, panels = [], []
    for name, sides in by_optimizer.items():
        ratios = figures["ratios"][name]
        rows = [row._replace(median=row.median | ratios[title]) for title, row in sides.items()]
        tables.append(Table(name, (*MEASURES, _OF_DEVICE, _OF_NAIVE), rows))
        ours = sum(row.job["side"] in OURS for row in rows)
        panels += report.make_panels(tables[-1], f"{name}: {{}}", ours)
    title = (
        f"A table of {options.rows:,} x {options.dim}, {options.ids:,} ids a step by Zipf's law; "
        f"{options.count_runs()} a side"
    )
    return Result("tables", title, described, options.measured(), tables, figures, panels)


def _make_jobs(options: TablesOptions) -> list[Job]:
    """Return a job for each optimizer and side, and of host for each share of `hot_shares`.

    The steps of a block are rounded up to whole chunks. torch has no job with rowwise_adagrad.
    Raises UsageError for an unknown name, or if there is no job.
    """
    optimizers = chosen("optimizers", options.optimizers, _STATE, "optimizer of tables")
    sides = chosen("sides", options.sides, OURS, "side of tables")
    peers = chosen("peers", options.peers, PEERS, "peer of tables")
    shares = numbers(options.hot_shares)
    hot: dict[str, list[int | None]] = {"host": shares, "disk": [_DISK_HOT]}
    # A chunk has whole calls, and a block whole chunks.
    chunk = -(-options.stage_steps // STEPS) * STEPS
    steps = -(-options.steps // chunk) * chunk
    jobs = [
        Job(name, side, share, options.rows, options.dim, options.ids, steps, options.stage_steps)
        for name in optimizers
        for side in [*sides, *peers]
        for share in hot.get(side, [None])
        if (name, side) != ("rowwise_adagrad", "torch")  # torch has no such optimizer
    ]
    if not jobs:
        raise UsageError(
            "--optimizers, --sides and --peers leave nothing to measure; give more of them"
        )
    return jobs


def _needed_bytes(job: Job) -> float:
    """Return the expected memory of the process in bytes: a constant, table, slots and cache.

    Of `disk`, only the constant counts.
    """
    table = 0 if job.side == "disk" else _STATE[job.optimizer] * job.rows * job.dim * 4
    return table * (1 + (job.hot or 0) / 100) + _BESIDE_BYTES


def _measure(job: Job, seed: int, parent: str) -> dict[str, Any]:
    """Run a side in its own process; return its figures, or the reason as `left_out`.

    A table in a file is in a temporary folder below `parent`; if that is empty, below the folder of
    temporary files.
    """
    program = "tables_torch" if job.side == "torch" else "tables_sides"
    with temporary_folder("lexrow-benchmark-", parent or None) as folder:
        spec = job._asdict() | {"seed": seed, "folder": folder}
        return programs.run(f"{job.optimizer}, {job.title}", f"tables.{program}", spec)[0]


def _ratios(sides: dict[str, Row]) -> dict[str, dict[str, float | None]]:
    """Return by side its speed over the speed of device, and its moved bytes over those of naive.

    A ratio is None if either figure is unknown or the second is 0.
    """
    return {
        title: {
            _OF_DEVICE.key: report.ratio(SPEED, row, sides.get("device")),
            _OF_NAIVE.key: report.ratio(MOVED, row, sides.get("naive")),
        }
        for title, row in sides.items()
    }
