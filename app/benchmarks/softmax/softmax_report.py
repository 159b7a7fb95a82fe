"""What `softmax` says of its results: a table for each number of targets, ratios, and curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..harness import trials
from ..harness.report import Lines, Measure, aligned, show

STEP = Measure("step_ms", "ms a step", ",.1f", better="lower")
PEAK = Measure("peak_bytes", "peak, GB", ",.2f", per=1e9, better="lower")
MEASURES = (
    STEP,
    Measure("rows", "rows written", ",.0f"),
    Measure("read_bytes", "MB read", ",.1f", per=1e6),
    Measure("written_bytes", "MB written", ",.1f", per=1e6),
    PEAK,
    Measure("above_table_bytes", "above tables, GB", ",.2f", per=1e9, better="lower"),
)
# Of times of a step; a peer's does what ours does.
_RATIOS = (("dense", "softmax"), ("copies", "class_softmax"))


class Job(NamedTuple):
    """One side, for so many words, targets and hidden units; `steps` are timed at most."""

    side: str
    words: int
    targets: int
    dim: int
    compute_dtype: str
    steps: int

    @property
    def name(self) -> str:
        """What to call it in a message."""
        return f"{self.side}, {self.words:,} words, {self.targets:,} targets"


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


def text(results: Sequence[Result]) -> str:
    """A table for each number of targets with a row a side and vocabulary, and the ratios."""
    parts = []
    for targets, own in _by_targets(results).items():
        heads = [f"{targets:,} targets", "words", *(measure.title for measure in MEASURES)]
        parts.append(aligned([heads, *map(_row, own)]))
        left_out = [f"{result.job.name}: {result.left_out}" for result in own if result.left_out]
        if left_out:
            parts.append("\n".join(f"left out: {line}" for line in left_out))
        parts += filter(None, [_ratios(own)])
    return "\n\n".join(parts)


def panels(results: Sequence[Result]) -> list[Lines]:
    """Time and memory against the words, for each number of targets, of what was not left out."""
    found = []
    for targets, own in _by_targets(results).items():
        for measure in (STEP, PEAK):
            values: dict[str, dict[int, float]] = {}
            for result in own:
                value = result.median[measure.key]
                if value is not None:
                    values.setdefault(result.job.side, {})[result.job.words] = value / measure.per
            title = f"{targets:,} targets: {measure.title}"
            if values:
                peers = frozenset(peer for peer, _ in _RATIOS)
                found.append(Lines(values, title, "words", peers))
    return found


def _by_targets(results: Sequence[Result]) -> dict[int, list[Result]]:
    """In each, one side after the other."""
    found: dict[int, list[Result]] = {}
    for result in results:
        found.setdefault(result.job.targets, []).append(result)
    sides = list(dict.fromkeys(result.job.side for result in results))
    return {
        targets: sorted(own, key=lambda result: sides.index(result.job.side))
        for targets, own in found.items()
    }


def _row(result: Result) -> list[str]:
    shown = [show(measure, result.median[measure.key]) for measure in MEASURES]
    return [result.job.side, f"{result.job.words:,}", *shown]


def _ratios(results: Sequence[Result]) -> str:
    """A line for each peer: its time against that of the loss of ours, for each vocabulary."""
    times = {(result.job.side, result.job.words): result.median[STEP.key] for result in results}
    sizes = sorted({words for _, words in times})
    lines = []
    for peer, ours in _RATIOS:
        known = [
            f"{times[peer, words] / times[ours, words]:.1f} x at {words:,}"
            for words in sizes
            if times.get((peer, words)) and times.get((ours, words))
        ]
        if known:
            lines.append(f"{peer} : {ours}: {', '.join(known)}")
    return "\n".join(lines)
