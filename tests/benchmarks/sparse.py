"""Compare one step of a large embedding table, row by row, with Keras.

    python -m tests.benchmarks.sparse --optimizers=lazy_adam --json=FILE

The case is from keras issue 4365 (2016): 793,471 x 512, 128 x 20 random ids, squared error. Each
side is a process of its own, one at a time:

- table: the trainer's step on a table of Lexrow;
- fit: `lexrow.keras` in keras.fit;
- keras, keras_jit: stock Keras in keras.fit, by default and with jit_compile=True.

Ids differ from step to step; initial rows, ids and target are the same for every side. The figures
of a side:

- ms a step: the median over blocks of steps, without compilation and the first use of memory. A
  block of keras.fit is an epoch, with all that Keras does for it;
- peak memory: the most resident memory of the process; and the same without the table and its
  slots, on a GPU of the memory of the GPU.

A further table has the time of Lexrow's step (lazy Adam, 128 columns) as the rows grow in number.
"""

from __future__ import annotations

from typing import Any

from app.errors import UsageError
from tests.benchmarks import harness, programs
from tests.benchmarks.harness import Measure, Report, Table

MEASURES = (
    Measure("step_ms", "ms a step", drawn=True),
    Measure("peak_bytes", "peak, GB", ",.2f", 1e9),
    Measure("table_bytes", "table and slots, GB", ",.2f", 1e9),
    Measure("above_table_bytes", "above them, GB", ",.2f", 1e9),
)
PEERS = ("keras", "keras_jit")
_RATIOS = (("keras", "fit"), ("keras_jit", "fit"))
# Optimizer -> its classes in lexrow.keras and in keras.optimizers (empty: none), and settings.
OPTIMIZERS: dict[str, tuple[str, str, dict[str, float]]] = {
    "sgd": ("SGD", "SGD", {}),
    "momentum": ("SGD", "SGD", {"momentum": 0.9}),
    "adagrad": ("Adagrad", "Adagrad", {}),
    "rowwise_adagrad": ("RowwiseAdagrad", "", {}),
    "ftrl": ("", "Ftrl", {}),
    "lazy_adam": ("LazyAdam", "Adam", {}),
    "lazy_adamw": ("LazyAdamW", "AdamW", {}),
}
# With two slots of Adam, 8 million rows take 12 GB, about as much as Keras's Adam above.
_GROWING = ("lazy_adam", "table", 128)


def define(values: Any) -> None:
    """Define the flags of the case."""
    harness.define(values, "optimizers", help="Optimizers to compare.", names=OPTIMIZERS)
    harness.define(values, "peers", help="Stock Keras, also with jit_compile.", names=PEERS)
    harness.define(values, "rows", 793_471, "Rows of the table.")  # of keras issue 4365
    harness.define(values, "dim", 512, "Columns of the table.")
    harness.define(values, "steps", 100, "Steps in a timed block; a slow side makes fewer.")
    text = "Rows of further tables, for which the step of Lexrow is compared."
    harness.define(values, "vocabularies", "100000,1000000,8000000", text, numbers=1)


def run(options: Any) -> Report:
    """Run every side `options.repeats` times, but those for which the memory is too small."""
    sides = ["table", "fit", *options.peers]

    def job(optimizer: str, side: str, dim: int, rows: int) -> dict[str, Any]:
        ours, theirs, settings = OPTIMIZERS[optimizer]
        in_fit = {"in_fit": ours if side == "fit" else theirs, "settings": settings}
        sizes = {"rows": rows, "dim": dim, "steps": options.steps}
        return {"optimizer": optimizer, "side": side, **in_fit, **sizes}

    groups = {}
    for name in options.optimizers:
        jobs = [job(name, side, options.dim, options.rows) for side in sides]
        groups[name] = {one["side"]: one for one in jobs if one["side"] == "table" or one["in_fit"]}
    if options.vocabularies:
        title = "lazy_adam on a table of 128 columns"
        groups[title] = {f"{rows:,} rows": job(*_GROWING, rows) for rows in options.vocabularies}
    if not groups:
        raise UsageError("--optimizers= and --vocabularies= are empty; give one of them")
    described = programs.describe(["tensorflow", "keras", "numpy"])
    measured = programs.run_sides("sparse_sides:measure", groups, options.repeats)
    tables = [
        Table(runs, MEASURES, title, PEERS, _RATIOS if title in OPTIMIZERS else None)
        for title, runs in measured.items()
    ]
    title = f"One step of a table, {options.rows:,} x {options.dim}, 128 x 20 ids"
    return Report(f"{title}; {harness.count_runs(options)} a side", described, tables)


if __name__ == "__main__":
    harness.main(define, run)
