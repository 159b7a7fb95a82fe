"""Measure one step of an output layer as the vocabulary grows: each loss, beside a full softmax.

    python -m tests.benchmarks.softmax --targets=400 --json=FILE

A step predicts words, drawn by Zipf's law, from hidden vectors. The gradient by these vectors goes
to a shift, a vector that is added to all of them, as it would go to the layer below. Words and
hidden vectors are the same for every side. Each side is a process of its own, one at a time:

- each loss of Lexrow: the trainer's step, with row-wise Adagrad;
- dense: the full softmax in plain TensorFlow: all scores at once, a dense gradient, dense Adagrad.

The figures of a side:

- ms a step: the median over blocks of steps, without compilation and the first use of memory;
- peak memory: the most resident memory of the process; and the same without tables and slots, on a
  GPU of the memory of the GPU.

A side is left out if it does not fit the memory, or if a step would take minutes.
"""

from __future__ import annotations

from typing import Any

from app.errors import UsageError
from tests.benchmarks import harness, programs
from tests.benchmarks.harness import Measure, Report, Table

MEASURES = (
    Measure("step_ms", "ms a step", drawn=True),
    Measure("peak_bytes", "peak, GB", ",.2f", 1e9, drawn=True),
    Measure("above_table_bytes", "above tables, GB", ",.2f", 1e9),
)
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
PEERS = ("dense",)
# Products of all targets with all words in a step: the scores and two gradients; the streamed
# softmax computes the scores twice. The adaptive softmax computes a share of them
# (`adaptive_softmax.choose_cutoffs`: 3 % with ten million words, 6 % with 10,000).
_PRODUCTS = {"dense": 3, "softmax": 4, "adaptive_softmax": 0.15}
_MOST_OPERATIONS = 1e13  # with more, a step takes minutes on a few cores


def define(values: Any) -> None:
    """Define the flags of the case."""
    harness.define(values, "losses", help="Losses, and rules of the class softmax.", names=LOSSES)
    harness.define(values, "peers", "dense", "Peers to run beside Lexrow.", names=PEERS)
    sizes = "10000,100000,1000000,10000000"
    harness.define(values, "vocabularies", sizes, "Sizes of the vocabulary.", numbers=2)
    harness.define(values, "targets", "400,40000", "Numbers of targets in a step.", numbers=1)
    harness.define(values, "dim", 300, "Hidden units.")
    text = "Dtype of the matrix products of Lexrow; peers use float32."
    harness.define(values, "compute_dtype", "float32", text, choices=("float32", "bfloat16"))
    harness.define(values, "steps", 20, "Steps in a timed block; a slow side makes fewer.")


def run(options: Any) -> Report:
    """Run every side `options.repeats` times, but those that take too much memory or time."""
    groups = {
        f"{targets:,} targets, {words:,} words": {
            side: _make_job(side, words, targets, options)
            for side in [*options.losses, *options.peers]
        }
        for targets in options.targets
        for words in options.vocabularies
    }
    if not (groups and options.losses + options.peers):
        raise UsageError("--losses, --peers, --vocabularies and --targets leave nothing to measure")
    described = programs.describe(["tensorflow", "numpy"])
    measured = programs.run_sides("softmax_sides:measure", groups, options.repeats)
    tables = [
        Table(runs, MEASURES, title, PEERS, [("dense", "softmax")])
        for title, runs in measured.items()
    ]
    title = f"One step of an output layer of {options.dim} hidden units"
    return Report(f"{title}; {harness.count_runs(options)} a side", described, tables)


def _make_job(side: str, words: int, targets: int, options: Any) -> dict[str, Any]:
    """Return the job of a side, with `left_out` if a step takes too long."""
    job = {"side": side, "words": words, "targets": targets, "settings": LOSSES.get(side)}
    job |= {name: getattr(options, name) for name in ("dim", "compute_dtype", "steps")}
    operations = _PRODUCTS.get(side, 0) * 2.0 * targets * words * options.dim
    if operations > _MOST_OPERATIONS:
        job["left_out"] = f"a step would take {operations / 1e12:,.0f} Tflop"
    return job


if __name__ == "__main__":
    harness.main(define, run)
