"""One step of an output layer as the vocabulary grows, loss by loss, beside two peers.

Targets are drawn by Zipf's law, anew for each step; hidden vectors are given. These sides each run
in a process of their own, one at a time:

- ours, for each loss: the trainer's step, with row-wise Adagrad;
- dense: the full softmax of plain TensorFlow: all scores at once, a dense gradient, dense Adagrad;
- copies: the two-level class softmax of plain TensorFlow, classes of equal size, in which every
  target gathers its own copy of its class's rows; row-wise Adagrad as ours.

Of each side is measured:

- ms a step: the median over steps, once shapes have been compiled and memory touched;
- rows that a step writes, and the bytes that it reads and writes of tables and slots;
- peak memory: the most that the process had resident (of a GPU where there is one), and that less
  its tables and slots.

A side that does not fit the memory, or that takes too much arithmetic to wait for, is left out, and
the report says what it would need.
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
from ..harness.options import SoftmaxOptions, chosen, numbers
from ..harness.report import Report
from . import softmax_report
from .softmax_by_hand import class_size
from .softmax_report import Job, Result

# What to call a loss -> the settings of the model.
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
# What every process takes beside rows of a table: TensorFlow and compiled code; and for each word,
# its count, the sum of those before it, and a place in a tree of words.
_BESIDE_BYTES = 1.3e9
_WORD_BYTES = 100
# How often a target's vector is held at once, with what is computed from it.
_VECTORS = 10
# How often all copies are: they, their gradients, and part of the sum of these.
_COPIES = 3.5
# Of the free memory, as a process that takes all of it is ended.
_SHARE = 0.9
# Products that a step makes of all targets with all words: the scores and two gradients; in tiles
# the scores twice. The adaptive softmax makes a share of these (`adaptive_softmax.choose_cutoffs`:
# 3 % of them with ten million words, 6 % with 10,000).
_PRODUCTS = {"dense": 3, "softmax": 4, "adaptive_softmax": 0.15}
# Of more a step would take minutes on a few cores.
_MOST_OPERATIONS = 1e13


def run(options: SoftmaxOptions) -> Report:
    """Runs every side `options.repeats` times and reports.

    UsageError for a loss, a peer or a size that cannot be; RunError when a side fails.
    """
    jobs = {job.name: job for job in _jobs(options)}
    described = machine.describe(["tensorflow", "numpy"])

    def run_one(name: str, repeat: int) -> dict[str, Any]:
        lacking = _lacking(jobs[name], bool(described["accelerators"]))
        return {"left_out": lacking} if lacking else _measured(jobs[name], repeat + 1)

    runs = trials.alternate(list(jobs), options.repeats, run_one)
    results = [Result.of(job, runs[name]) for name, job in jobs.items()]
    record = {
        "case": "softmax",
        "machine": described,
        "settings": _settings(options),
        "results": [result.record() for result in results],
    }
    title = f"One step of an output layer of {options.dim} hidden units"
    return Report(title, record, softmax_report.text(results), softmax_report.panels(results))


def _settings(options: SoftmaxOptions) -> dict[str, Any]:
    """What was measured, and not where the results went."""
    settings = dataclasses.asdict(options)
    return {name: value for name, value in settings.items() if name not in ("json", "plot")}


def _jobs(options: SoftmaxOptions) -> list[Job]:
    losses = chosen("losses", options.losses, LOSSES, "loss of softmax")
    peers = chosen("peers", options.peers, PEERS, "peer of softmax")
    sizes = numbers("vocabularies", options.vocabularies, "words", least=2)
    targets = numbers("targets", options.targets, "targets")
    if not losses and not peers:
        raise UsageError("--losses= and --peers= are empty; give one of them")
    for name, found in (("vocabularies", sizes), ("targets", targets)):
        if not found:
            raise UsageError(f"--{name}= is empty; give at least one number")
    return [
        Job(side, words, count, options.dim, options.compute_dtype, options.steps)
        for count in targets
        for words in sizes
        for side in [*losses, *peers]
    ]


def _lacking(job: Job, on_gpu: bool) -> str | None:
    """Why the side cannot run now, or not in reasonable time."""
    operations = _PRODUCTS.get(job.side, 0) * 2.0 * job.targets * job.words * job.dim
    if operations > _MOST_OPERATIONS:
        return f"a step would take {operations / 1e12:,.0f} Tflop"
    needed, free = needed_bytes(job), host_memory.free_bytes()
    if needed > _SHARE * free and not on_gpu:
        return f"would need {needed / 1e9:,.1f} GB, {free / 1e9:.1f} are free"
    return None


def needed_bytes(job: Job) -> float:
    """What the side's process takes at its peak, roughly (TensorFlow 2.21.0, two cores)."""
    row = _FLOAT * job.dim
    table = job.words * row
    needed = _BESIDE_BYTES + _WORD_BYTES * job.words + _VECTORS * job.targets * row + table
    if job.side == "dense":  # accumulator and gradient; all scores
        needed += 2 * table + _FLOAT * job.targets * job.words
    if job.side == "copies":
        needed += _COPIES * job.targets * class_size(job.words) * row
    return needed


def _measured(job: Job, seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="lexrow-bench-") as folder:
        result = Path(folder) / "result.json"
        spec = job._asdict() | {"settings": {}, "seed": seed, "result": str(result)}
        if job.side in LOSSES:
            spec |= {"side": "ours", "settings": LOSSES[job.side]}
        arguments = ["-m", f"{PACKAGE}.benchmarks.softmax.softmax_sides", json.dumps(spec)]
        usage = child_processes.run(job.name, arguments, Path(folder) / "log")
        values = json.loads(result.read_text(encoding="utf-8"))
    if "left_out" in values:
        return values
    peak = values["device_peak_bytes"] or usage.peak_bytes
    return values | {"peak_bytes": peak, "above_table_bytes": peak - values["table_bytes"]}
