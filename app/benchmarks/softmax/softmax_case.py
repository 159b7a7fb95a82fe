"""Measure one step of an output layer as the vocabulary grows: each loss, beside two peers.

Targets are drawn by Zipf's law for each step; hidden vectors are given. Each side is a process of
its own, one at a time:

- each loss of Lexrow: the trainer's step, with row-wise Adagrad;
- dense: the full softmax in plain TensorFlow: all scores at once, a dense gradient, dense Adagrad;
- copies: the class softmax of two levels in plain TensorFlow, with classes of equal size. Every
  target gathers its own copy of the rows of its class. Row-wise Adagrad.

The figures of a side:

- ms a step: the median over steps, after compilation and the first use of memory;
- the rows that a step writes, and the bytes of tables and slots that it reads and writes;
- peak memory: the most resident memory of the process (of a GPU, if there is one), and the same
  without tables and slots.

A side is left out if it does not fit the memory, or if a step would take minutes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...errors import UsageError
from ..harness import machine, programs, report, trials
from ..harness.option_values import chosen, numbers
from ..harness.options import SoftmaxOptions
from ..harness.report import Lines, Measure, Result, Row, Table
from .softmax_by_hand import class_size

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
# A peer, and the loss of Lexrow that computes the same.
_RATIOS = (("dense", "softmax"), ("copies", "class_softmax"))
# Name -> the settings of the model.
LOSSES: dict[str, dict[str, Any]] = {
    "softmax": {"loss": "softmax"},
    "sampled_softmax": {"loss": "sampled_softmax"},
    "nce": {"loss": "nce"},
    "hierarchical_softmax": {"loss": "hierarchical_softmax"},
    "class_softmax": {"loss": "class_softmax"},
    "class_equal_size": {"loss": "class_softmax", "class_rule": "equal_size"},
    "class_equal_frequency": {"loss": "class_softmax", "class_rule": "equal_frequency"},
    "class_three_levels": {"loss": "class_softmax", "class_levels": 3},
    "adaptive_softmax": {"loss": "adaptive_softmax"},
}
PEERS = ("dense", "copies")

_FLOAT = 4  # bytes
# Memory of every process beside rows of a table: TensorFlow and compiled code; and for each word
# its count, a cumulative count, and a node of a tree of words.
_BESIDE_BYTES = 1.3e9
_WORD_BYTES = 100
# Copies of a target's vector in memory at once, with what is computed from it.
_VECTORS = 10
# Copies of the rows of each target's class: they, their gradients, and part of their sums.
_COPIES = 3.5
# A share of the free memory, as the system ends a process that takes all of it.
_SHARE = 0.9
# Products of all targets with all words in a step: the scores and two gradients; the streamed
# softmax computes the scores twice. The adaptive softmax computes a share of them
# (`adaptive_softmax.choose_cutoffs`: 3 % with ten million words, 6 % with 10,000).
_PRODUCTS = {"dense": 3, "softmax": 4, "adaptive_softmax": 0.15}
# With more, a step takes minutes on a few cores.
_MOST_OPERATIONS = 1e13


class Job(NamedTuple):
    """One side.

    Attributes:
        side: A loss of `LOSSES`, or a peer.
        words: The size of the vocabulary.
        targets: Targets of a step.
        dim: Hidden units.
        compute_dtype: The dtype of the matrix products of Lexrow.
        steps: The most timed steps.
    """

    side: str
    words: int
    targets: int
    dim: int
    compute_dtype: str
    steps: int

    @property
    def name(self) -> str:
        """The name for messages, unique among the jobs of a run."""
        return f"{self.side}, {self.words:,} words, {self.targets:,} targets"


def run(options: SoftmaxOptions) -> Result:
    """Run every side `options.repeats` times, but those that take too much memory or time.

    Args:
        options: The settings of the case.

    Raises:
        UsageError: A loss, a peer or a size is not possible, or there is nothing to measure.
        RunError: A side failed.
    """
    jobs = {job.name: job for job in _make_jobs(options)}
    described = machine.describe(["tensorflow", "numpy"])
    on_gpu = bool(described["accelerators"])
    runs = trials.run_jobs(
        jobs, options.repeats, lambda job: _reason_against(job, on_gpu), _measure
    )
    by_targets: dict[int, list[Row]] = {}
    records = []
    for name, job in jobs.items():
        title = f"{job.side}, {job.words:,} words"
        row = report.make_row(title, runs[name], MEASURES, job._asdict())
        by_targets.setdefault(job.targets, []).append(row)
        records.append(row.record)
    tables = [_make_table(targets, rows) for targets, rows in by_targets.items()]
    panels = [
        panel for table in tables for measure in (STEP, PEAK) for panel in _lines(table, measure)
    ]
    title = f"One step of an output layer of {options.dim} hidden units"
    title += f"; {options.count_runs()} a side"
    figures = {"results": records}
    return Result("softmax", title, described, options.measured(), tables, figures, panels)


def _make_jobs(options: SoftmaxOptions) -> list[Job]:
    """Return the jobs ordered by number of targets, vocabulary and side.

    Raises UsageError for an unknown name, or if there are no losses and no peers.
    """
    losses = chosen("losses", options.losses, LOSSES, "loss of softmax")
    peers = chosen("peers", options.peers, PEERS, "peer of softmax")
    sizes = numbers(options.vocabularies)
    targets = numbers(options.targets)
    if not losses and not peers:
        raise UsageError("--losses= and --peers= are empty; give one of them")
    return [
        Job(side, words, count, options.dim, options.compute_dtype, options.steps)
        for count in targets
        for words in sizes
        for side in [*losses, *peers]
    ]


def _reason_against(job: Job, on_gpu: bool) -> str | None:
    """Return why the side cannot run in reasonable time and memory, or None if it can.

    With a GPU the memory is not checked.
    """
    operations = _PRODUCTS.get(job.side, 0) * 2.0 * job.targets * job.words * job.dim
    if operations > _MOST_OPERATIONS:
        return f"a step would take {operations / 1e12:,.0f} Tflop"
    return None if on_gpu else machine.missing_memory(needed_bytes(job), _SHARE)


def needed_bytes(job: Job) -> float:
    """Return the approximate peak memory of a side's process (TensorFlow 2.21.0, two cores).

    Args:
        job: The side.
    """
    row = _FLOAT * job.dim
    table = job.words * row
    needed = _BESIDE_BYTES + _WORD_BYTES * job.words + _VECTORS * job.targets * row + table
    if job.side == "dense":  # accumulator and gradient; all scores
        needed += 2 * table + _FLOAT * job.targets * job.words
    if job.side == "copies":
        needed += _COPIES * job.targets * class_size(job.words) * row
    return needed


def _measure(job: Job, seed: int) -> dict[str, Any]:
    """Run a side in its own process; return its figures, or `left_out` if memory is too small."""
    spec = job._asdict() | {"settings": {}, "seed": seed}
    if job.side in LOSSES:
        spec |= {"side": "ours", "settings": LOSSES[job.side]}
    values, usage = programs.run(job.name, "softmax.softmax_sides", spec)
    if "left_out" in values:
        return values
    peak = values["device_peak_bytes"] or usage.peak_bytes
    return values | {"peak_bytes": peak, "above_table_bytes": peak - values["table_bytes"]}


def _make_table(targets: int, rows: list[Row]) -> Table:
    """Return the table for one number of targets, with its rows ordered by side.

    Each peer is compared with its loss of `_RATIOS` for the same number of words.
    """
    sides = list(dict.fromkeys(row.job["side"] for row in rows))
    rows = sorted(rows, key=lambda row: sides.index(row.job["side"]))
    known = {(row.job["side"], row.job["words"]): row for row in rows if not row.left_out}
    compared = [
        (f"{peer} : {ours}, {words:,} words", row, known[ours, words])
        for peer, ours in _RATIOS
        for (side, words), row in known.items()
        if side == peer and (ours, words) in known
    ]
    return Table(f"{targets:,} targets", MEASURES, rows, compared)


def _lines(table: Table, measure: Measure) -> list[Lines]:
    """Return a list of the panel of a measure over the words; empty if no side has the measure."""
    values: dict[str, dict[int, float]] = {}
    for row in table.rows:
        value = row.median[measure.key]
        if value is not None:
            values.setdefault(row.job["side"], {})[row.job["words"]] = value / measure.per
    title = f"{table.title}: {measure.title}"
    return [Lines(values, title, "words", frozenset(PEERS))] if values else []
