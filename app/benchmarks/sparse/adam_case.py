"""Adam on a table of users too large to be comfortable: the rows of a step, or the whole table.

The step is that of matrix factorisation, on the products of rows of users and items (100,000 of
those, squared error), drawn uniformly. Each side is a process of its own, one at a time:

- lexrow: the trainer's step with lazy Adam, which reads and writes the rows of the step;
- dense: plain TensorFlow as fast as it can be while gradient and moments are as large as the table;
- keras: Embedding layers and Adam in keras.fit, as they come.

Of each is measured steps a second, the median over blocks, without compilation and the first touch
of memory; the bytes of tables and slots; and the most memory that the process had resident.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from ... import __name__ as PACKAGE
from ...errors import UsageError
from ...system import host_memory
from ..harness import child_processes, machine, trials
from ..harness.options import AdamOptions, chosen
from ..harness.report import Measure, Report, panels, results, table
from ..harness.trainer import OURS

ITEMS = 100_000
MEASURES = (
    Measure("steps_per_second", "steps/s", ",.2f", better="higher"),
    Measure("step_seconds", "a step, ms", ",.1f", per=1e-3, better="lower"),
    Measure("state_bytes", "tables and slots, GB", ",.2f", per=1e9, better="lower"),
    Measure("peak_bytes", "peak memory, GB", ",.2f", per=1e9, better="lower"),
)
# The most that a side holds at its peak, as a multiple of the tables, and beside them: measured by
# this case (TensorFlow 2.21.0, Keras 3.15.1, two cores).
HELD = {OURS: 3.0, "dense": 5.5, "keras": 5.5}
_BESIDE_BYTES = 1e9


def run(options: AdamOptions) -> Report:
    """Runs every side `options.repeats` times and reports.

    UsageError for a peer that is unknown, and for tables that memory does not suffice for.
    """
    sides = [OURS, *chosen("peers", options.peers, list(HELD)[1:], "peer of adam")]
    bytes = 4 * (options.users + ITEMS) * options.dim
    needed = max(HELD[side] for side in sides) * bytes + _BESIDE_BYTES
    free = host_memory.free_bytes()
    if needed > free:
        raise UsageError(
            f"--users={options.users} needs {needed / 1e9:.1f} GB, and {free / 1e9:.1f} are free; "
            "give fewer, or other --peers"
        )
    described = machine.describe(["tensorflow", "keras", "numpy"])
    settings = {"items": ITEMS} | {k: getattr(options, k) for k in ("users", "dim", "pairs")}

    def run_one(side: str, repeat: int) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="lexrow-bench-") as folder:
            result = Path(folder) / "result.json"
            spec = settings | {"side": side, "seed": repeat + 1, "result": str(result)}
            arguments = ["-m", f"{PACKAGE}.benchmarks.sparse.adam_sides", json.dumps(spec)]
            usage = child_processes.run(side, arguments, Path(folder) / "log")
            values = json.loads(result.read_text(encoding="utf-8"))
        speed = 1 / values["step_seconds"]
        return values | {"steps_per_second": speed, "peak_bytes": usage.peak_bytes}

    found = results(trials.alternate(sides, options.repeats, run_one), MEASURES)
    record = {
        "case": "adam",
        "machine": described,
        "settings": settings,
        **found,
    }
    times = f"medians of {options.repeats} runs" if options.repeats > 1 else "one run"
    title = (
        f"Adam on {options.users:,} users x {options.dim}, {options.pairs:,} pairs a step; "
        f"{times} a side"
    )
    drawn = [measure for measure in MEASURES if measure.key != "step_seconds"]
    return Report(title, record, table(found, MEASURES), panels(found, drawn))
