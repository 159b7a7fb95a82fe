"""What `sparse` says of its results: tables for people, bars and a curve for a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..harness import trials
from ..harness.report import Curve, Measure, Panel, aligned, show

STEP = Measure("step_ms", "ms a step", ",.1f", better="lower")
MEASURES = (
    STEP,
    Measure("peak_bytes", "peak, GB", ",.2f", per=1e9, better="lower"),
    Measure("table_bytes", "table and slots", ",.2f", per=1e9),
    Measure("above_table_bytes", "above them, GB", ",.2f", per=1e9, better="lower"),
    Measure("above_import_bytes", "above the import", ",.2f", per=1e9, better="lower"),
)
TITLES = {
    "table": "ours, on a table",
    "fit": "ours, in fit",
    "hand": "by hand",
    "keras": "Keras",
    "keras_jit": "Keras, jit",
}
OURS = ("table", "fit")
_RATIOS = (("keras", "fit"), ("keras_jit", "fit"), ("table", "hand"))


class Job(NamedTuple):
    """One side of one optimizer, for a table of rows x dim; `steps` are timed together at most."""

    optimizer: str
    side: str
    rows: int
    dim: int
    steps: int

    @property
    def name(self) -> str:
        """What to call it in a message."""
        return f"{self.optimizer}, {TITLES[self.side]}, {self.rows:,} x {self.dim}"


class Result(NamedTuple):
    """The runs of a job: values by key, or the reason under `left_out`; and their medians.

    left_out: the first reason, or None where every run was made.
    """

    job: Job
    runs: list[dict[str, Any]]
    median: dict[str, float | None]
    left_out: str | None

    @classmethod
    def of(cls, job: Job, runs: list[dict[str, Any]]) -> Result:
        """Of the runs, with their medians."""
        keys = [measure.key for measure in MEASURES]
        median = trials.medians([{key: values.get(key) for key in keys} for values in runs])
        reasons = [values["left_out"] for values in runs if "left_out" in values]
        return cls(job, runs, median, reasons[0] if reasons else None)

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return self.job._asdict() | {
            "left_out": self.left_out,
            "runs": self.runs,
            "median": self.median,
        }

    @property
    def step_ms(self) -> float | None:
        """Median of the time of a step; None where the job was left out."""
        return self.median[STEP.key]


def ratios(compared: Sequence[Result]) -> dict[str, dict[str, float]]:
    """Optimizer -> `side / side` -> ratio of the medians of ms a step, where both are known."""
    times: dict[str, dict[str, float]] = {}
    for result in compared:
        own = times.setdefault(result.job.optimizer, {})
        if result.step_ms is not None:
            own[result.job.side] = result.step_ms
    return {
        optimizer: {
            f"{above} / {below}": own[above] / own[below]
            for above, below in _RATIOS
            if above in own and below in own
        }
        for optimizer, own in times.items()
    }


def growth(growing: Sequence[Result]) -> float | None:
    """Time of a step of the largest table : of the smallest; None where either is not known."""
    times = [result.step_ms for result in growing]
    return times[-1] / times[0] if len(times) > 1 and times[0] and times[-1] else None


def text(compared: Sequence[Result], growing: Sequence[Result]) -> str:
    """Tables of both, ratios, and what was left out, for people."""
    parts = []
    if compared:
        names = [[result.job.optimizer, TITLES[result.job.side]] for result in compared]
        parts += [_table(["optimizer", "side"], names, compared), _ratio_table(compared)]
    if growing:
        job = growing[0].job
        names = [[f"{result.job.rows:,}"] for result in growing]
        parts.append(_table([f"{job.optimizer} on a table, {job.dim} columns"], names, growing))
        grown = growth(growing)
        if grown is not None:
            parts.append(f"ms a step, largest : smallest: {grown:.2f} x")
    left_out = [result for result in [*compared, *growing] if result.left_out]
    if left_out:
        lines = (f"left out: {result.job.name}: {result.left_out}" for result in left_out)
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def panels(compared: Sequence[Result], growing: Sequence[Result]) -> list[Panel | Curve]:
    """Bars for each optimizer, and our time against the rows, of what was not left out."""
    found: list[Panel | Curve] = []
    for optimizer in dict.fromkeys(result.job.optimizer for result in compared):
        own = [result for result in compared if result.job.optimizer == optimizer]
        sides = {result.job.side: result for result in own if not result.left_out}
        if sides:
            values = {TITLES[side]: result.step_ms for side, result in sides.items()}
            runs = {TITLES[side]: _times(result) for side, result in sides.items()}
            ours = sum(side in OURS for side in sides)
            found.append(Panel(STEP, values, runs, f"{optimizer}: {STEP.title}", ours, log=True))
    sizes = {result.job.rows: result for result in growing if not result.left_out}
    if sizes:
        values = {rows: result.step_ms for rows, result in sizes.items()}
        runs = {rows: _times(result) for rows, result in sizes.items()}
        job = growing[0].job
        title = f"ours, {job.optimizer}, {job.dim} columns: {STEP.title}"
        found.append(Curve(STEP, values, runs, title, "rows"))
    return found


def _times(result: Result) -> list[float]:
    return [values[STEP.key] for values in result.runs]


def _table(heads: list[str], names: Sequence[list[str]], results: Sequence[Result]) -> str:
    """A row a job: its medians, and the time of every run where there are several."""
    rows = [[*heads, *(measure.title for measure in MEASURES)]]
    for own, result in zip(names, results, strict=True):
        rows.append([*own, *(show(measure, result.median[measure.key]) for measure in MEASURES)])
    if len(results[0].runs) > 1:
        rows[0].append(f"runs, {STEP.title}")
        for row, result in zip(rows[1:], results, strict=True):
            row.append("  ".join(show(STEP, values.get(STEP.key)) for values in result.runs))
    return aligned(rows)


def _ratio_table(compared: Sequence[Result]) -> str:
    titles = {
        f"{above} / {below}": f"{TITLES[above]} : {TITLES[below]}" for above, below in _RATIOS
    }
    rows = [[STEP.title, *titles.values()]]
    for optimizer, own in ratios(compared).items():
        shown = (f"{own[key]:.2f} x" if key in own else "n/a" for key in titles)
        rows.append([optimizer, *shown])
    return aligned(rows)
