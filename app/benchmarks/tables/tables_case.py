"""Steps of a table that lives in different places, beside what others do with a large one.

Every step looks up ids that are drawn by Zipf's law, and trains on their distinct rows. For each
optimizer there are these sides, each run in a process of its own, one at a time:

- device: all rows in the memory of the device;
- host: rows in host memory, a share of them hot, the others staged for chunks of steps;
- disk: the same, the rows in a file;
- sharded: rows dealt over all GPUs, or over two logical CPU devices;
- dynamic: a row for each key, from when it is first seen;
- bfloat16: as device, rows and state in bfloat16, stochastically rounded;
- naive: the table in numpy on the host, the rows of each step sent to the device and back;
- torch: nn.Embedding(sparse=True) with SparseAdam.

Of each is measured, without compilation and the first touch of memory: steps a second, the median
over blocks; the share of the time in which steps wait for rows; the bytes moved to and from the
device a step; the share of look-ups whose row was there; and the most memory taken above what the
libraries take, files that are mapped not counted.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ... import __name__ as PACKAGE
from ...errors import UsageError
from ...system import host_memory
from ..harness import child_processes, machine, trials
from ..harness.options import TablesOptions, chosen, numbers
from ..harness.report import Measure, Panel, Report, aligned, show

OURS = ("device", "host", "disk", "sharded", "dynamic", "bfloat16")
PEERS = ("naive", "torch")
SPEED = Measure("steps_per_s", "steps/s", ",.0f", better="higher")
MOVED = Measure("staged_bytes", "MB moved a step", ",.2f", per=1e6, better="lower")
MEMORY = Measure("peak_bytes", "peak, GB", ",.2f", per=1e9, better="lower")
MEASURES = (
    SPEED,
    Measure("rows_per_s", "rows/s", ",.0f", better="higher"),
    Measure("stage_stall", "stall", ".1%", better="lower"),
    MOVED,
    Measure("stage_hit_rate", "hits", ".1%", better="higher"),
    MEMORY,
    Measure("device_peak_bytes", "of the GPU", ",.2f", per=1e9, better="lower"),
)
STEPS = 10  # of a call, which is one of a compiled function for ours
_DISK_HOT = 10  # per cent
# What rows with their state take, as a multiple of the rows.
_STATE = {"lazy_adam": 3, "rowwise_adagrad": 1}
_BESIDE_BYTES = 1.3e9  # of every process beside the table


class Job(NamedTuple):
    """A side with an optimizer, on a table of rows x dim.

    hot: per cent of the rows that stay on the device; None for a side that stages none. ids: of a
    step, as they come. steps: that are timed together, whole chunks of `stage_steps`.
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
        """What to call the side."""
        return self.side if self.hot is None else f"{self.side}, {self.hot} % hot"


def run(options: TablesOptions) -> Report:
    """Runs every side `options.repeats` times and reports.

    A side for which memory does not suffice, or whose library is missing, is left out, and the
    report says so. UsageError for what cannot be; RunError when a side fails.
    """
    jobs = {f"{job.optimizer}, {job.title}": job for job in _jobs(options)}
    described = machine.describe(["tensorflow", "numpy"])

    def run_one(name: str, repeat: int) -> dict[str, Any]:
        lacking = None if described["accelerators"] else _lacking(jobs[name])
        return (
            {"left_out": lacking} if lacking else _measured(name, jobs[name], repeat + 1, options)
        )

    runs = trials.alternate(list(jobs), options.repeats, run_one)
    found = [_result(job, runs[name]) for name, job in jobs.items()]
    settings = dataclasses.asdict(options)
    record = {
        "case": "tables",
        "machine": described,
        "settings": {key: settings[key] for key in settings if key not in ("json", "plot")},
        "sides": found,
        "ratios": _ratios(found),
    }
    return Report(_title(options), record, _text(found), _panels(found))


def _jobs(options: TablesOptions) -> list[Job]:
    optimizers = chosen("optimizers", options.optimizers, _STATE, "optimizer of tables")
    sides = chosen("sides", options.sides, OURS, "side of tables")
    peers = chosen("peers", options.peers, PEERS, "peer of tables")
    shares = numbers("hot_shares", options.hot_shares, "per cent", least=0)
    if shares and shares[-1] > 100:
        raise UsageError(f"--hot_shares={options.hot_shares}: give at most 100 per cent")
    hot: dict[str, list[int | None]] = {"host": shares, "disk": [_DISK_HOT]}
    # A chunk is whole calls, and a block whole chunks.
    chunk = -(-options.stage_steps // STEPS) * STEPS
    steps = -(-options.steps // chunk) * chunk
    jobs = [
        Job(name, side, share, options.rows, options.dim, options.ids, steps, options.stage_steps)
        for name in optimizers
        for side in [*sides, *peers]
        for share in hot.get(side, [None])
        if (name, side) != ("rowwise_adagrad", "torch")  # which has none
    ]
    if not jobs:
        raise UsageError(
            "--optimizers, --sides and --peers leave nothing to measure; give more of them"
        )
    return jobs


def _lacking(job: Job) -> str | None:
    """Why the side cannot run, if there is not enough memory for it now."""
    table = 0 if job.side == "disk" else _STATE[job.optimizer] * job.rows * job.dim * 4
    needed = table * (1 + (job.hot or 0) / 100) + _BESIDE_BYTES
    free = host_memory.free_bytes()
    return f"needs {needed / 1e9:.1f} GB, {free / 1e9:.1f} are free" if needed > free else None


def _measured(name: str, job: Job, seed: int, options: TablesOptions) -> dict[str, Any]:
    where = options.folder or None
    with tempfile.TemporaryDirectory(prefix="lexrow-bench-", dir=where) as folder:
        result = Path(folder) / "result.json"
        spec = job._asdict() | {"seed": seed, "folder": folder, "result": str(result)}
        program = "tables_torch" if job.side == "torch" else "tables_sides"
        arguments = ["-m", f"{PACKAGE}.benchmarks.tables.{program}", json.dumps(spec)]
        child_processes.run(name, arguments, Path(folder) / "log")
        return json.loads(result.read_text(encoding="utf-8"))


def _result(job: Job, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Of a job for JSON: its runs, their medians, and why it was left out, if it was."""
    median = trials.medians([{m.key: own.get(m.key) for m in MEASURES} for own in runs])
    reasons = [own["left_out"] for own in runs if "left_out" in own]
    return {
        **job._asdict(),
        "title": job.title,
        "runs": runs,
        "median": median,
        "left_out": reasons[0] if reasons else None,
    }


def _ratios(found: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, float | None]]]:
    """Optimizer -> side -> its speed over the device's, its bytes moved over those of naive."""
    ratios: dict[str, dict[str, dict[str, float | None]]] = {}
    for name, sides in _by_optimizer(found).items():
        ratios[name] = {
            title: {
                "speed_of_device": _ratio(SPEED, own, sides.get("device")),
                "moved_of_naive": _ratio(MOVED, own, sides.get("naive")),
            }
            for title, own in sides.items()
        }
    return ratios


def _ratio(measure: Measure, own: Mapping, other: Mapping | None) -> float | None:
    value, base = (side and side["median"][measure.key] for side in (own, other))
    return value / base if value is not None and base else None


def _by_optimizer(found: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    names = dict.fromkeys(own["optimizer"] for own in found)
    return {
        name: {own["title"]: own for own in found if own["optimizer"] == name} for name in names
    }


def _text(found: list[dict[str, Any]]) -> str:
    """A table for each optimizer, a side a row: medians, and ratios; then what was left out."""
    ratios = _ratios(found)
    shown = [m for m in MEASURES if any(own["median"][m.key] is not None for own in found)]
    parts = []
    for name, sides in _by_optimizer(found).items():
        rows = [[name, *(measure.title for measure in shown), "speed : device", "moved : naive"]]
        for title, own in sides.items():
            compared = ratios[name][title].values()
            rows.append([title, *(show(m, own["median"][m.key]) for m in shown)])
            rows[-1] += ["n/a" if ratio is None else f"{ratio:.2f} x" for ratio in compared]
        parts.append(aligned(rows))
    left_out = [own for own in found if own["left_out"]]
    parts += [f"left out: {o['optimizer']}, {o['title']}: {o['left_out']}" for o in left_out]
    return "\n\n".join(parts)


def _panels(found: list[dict[str, Any]]) -> list[Panel]:
    """Speed and memory for each optimizer, of what was not left out."""
    panels = []
    for name, sides in _by_optimizer(found).items():
        there = {title: own for title, own in sides.items() if not own["left_out"]}
        ours = sum(own["side"] in OURS for own in there.values())
        for measure in (SPEED, MEMORY) if there else ():
            values = {title: own["median"][measure.key] for title, own in there.items()}
            runs = {
                title: [values[measure.key] for values in own["runs"]]
                for title, own in there.items()
            }
            panels.append(Panel(measure, values, runs, f"{name}: {measure.title}", ours))
    return panels


def _title(options: TablesOptions) -> str:
    runs = f"medians of {options.repeats} runs" if options.repeats > 1 else "one run"
    return (
        f"A table of {options.rows:,} x {options.dim}, {options.ids:,} ids a step by Zipf's law; "
        f"{runs} a side"
    )
