"""Compare Adam on the rows of a step with Adam on the whole table, for many users.

The sides are lexrow (lazy Adam on a table), dense (TensorFlow's Adam with a dense gradient) and
keras (stock Keras in keras.fit), as in `sparse_case`. The figures are steps a second, the memory of
the table and its slots, and the peak memory of the process.
"""

from __future__ import annotations

from typing import Any

from ...errors import UsageError
from ..harness import machine, programs, report, trials
from ..harness.option_values import chosen
from ..harness.options import AdamOptions, SparseOptions
from ..harness.report import Measure, Result
from ..harness.trainer import OURS
from . import sparse_case
from .sparse_case import Job

MEASURES = (
    Measure("steps_per_second", "steps/s", ",.2f", better="higher", drawn=True),
    Measure("step_seconds", "a step, ms", ",.1f", per=1e-3, better="lower"),
    Measure("state_bytes", "table and slots, GB", ",.2f", per=1e9, better="lower", drawn=True),
    Measure("peak_bytes", "peak memory, GB", ",.2f", per=1e9, better="lower", drawn=True),
)
# Name -> its side of `sparse`.
_SIDES = {OURS: "table", "dense": "dense", "keras": "keras"}


def run(options: AdamOptions) -> Result:
    """Run every side `options.repeats` times.

    Args:
        options: The settings of the case.

    Raises:
        UsageError: A peer is unknown, or the memory is too small for one of the sides.
        RunError: A side failed.
    """
    sides = [OURS, *chosen("peers", options.peers, ("dense", "keras"), "peer of adam")]
    size, steps = (options.users, options.dim), SparseOptions().steps
    jobs = {
        side: Job("lazy_adam", _SIDES[side], *size, steps, (options.pairs, 1)) for side in sides
    }
    if missing := machine.missing_memory(max(job.needed_bytes for job in jobs.values())):
        raise UsageError(f"--users={options.users}: {missing}; give fewer, or other --peers")
    described = machine.describe(["tensorflow", "keras", "numpy"])
    bare = programs.import_usage("keras")

    def run_one(side: str, repeat: int) -> dict[str, Any]:
        """Run a side with seed `repeat + 1`; return its figures, or the reason as `left_out`."""
        values = sparse_case.measure(jobs[side], repeat + 1, bare)
        if "left_out" in values:
            return values
        return {
            "steps_per_second": 1000 / values["step_ms"],
            "step_seconds": values["step_ms"] / 1000,
            "block_steps": values["block_steps"],
            "state_bytes": values["table_bytes"],
            "peak_bytes": values["peak_bytes"],
        }

    table = report.make_table(trials.alternate(sides, options.repeats, run_one), MEASURES)
    title = (
        f"Adam on {options.users:,} users x {options.dim}, {options.pairs:,} ids a step; "
        f"{options.count_runs()} a side"
    )
    settings = {name: getattr(options, name) for name in ("users", "dim", "pairs")}
    panels, figures = report.make_panels(table), report.sides_record(table)
    return Result("adam", title, described, settings, [table], figures, panels)
