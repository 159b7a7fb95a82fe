"""Compare a recommender in keras.fit with Adam: tables of each kind, stock Keras and keras-rs.

    python -m tests.benchmarks.keras --json=FILE

The model has a tower for users and a tower for items, and a softmax over the items of the batch.
Each side is a process of its own, one at a time. Ids are drawn by Zipf's law. All batches are drawn
before the training begins, and the pipeline of tf.data only takes slices of arrays in memory, so
that no side waits for it.

The sides of Lexrow are the kinds of table of `RowEmbedding`, `DynamicEmbedding`, and the kind
`device` with jit_compile. `_cache` stands for a cache on the device, filled by `prefetch_rows`.
Without a GPU, `sharded` has two logical devices of the processor. These sides have `LazyAdam` as
optimizer, the peers have Adam of Keras. keras-rs (`EmbedReduce`) accelerates nothing but on TPUs.

The figures of a side:

- steps a second, and ms a step: the median over blocks of steps, without compilation and the first
  use of memory. A block is an epoch, with all that Keras does for it;
- peak memory: the most resident memory of the process, with the code of TensorFlow and, of a table
  in a file, with the parts that the system holds in memory as long as there is room;
- without files: the same without both of them, read every 0.02 s;
- table and slots: the rows and both moments, of a dynamic table of the rows in use only;
- on a GPU, the peak of its memory.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from app.errors import UsageError
from tests.benchmarks import harness, programs
from tests.benchmarks.harness import Measure, Report, Table, temporary_folder

OURS = ("device", "device_jit", "host", "host_cache", "file", "file_cache", "sharded", "dynamic")
PEERS = ("keras", "keras_jit", "keras_rs")
MEASURES = (
    Measure("steps_per_s", "steps/s", drawn=True),
    Measure("step_ms", "ms a step"),
    Measure("peak_bytes", "peak, GB", ",.2f", 1e9, drawn=True),
    Measure("own_peak_bytes", "without files", ",.2f", 1e9),
    Measure("table_bytes", "table and slots", ",.2f", 1e9),
    Measure("device_peak_bytes", "of the GPU", ",.2f", 1e9),
)


def define(values: Any) -> None:
    """Define the flags of the case."""
    harness.define(values, "sides", help="Kinds of table of Lexrow.", names=OURS)
    harness.define(values, "peers", help="Keras, also with jit_compile; keras-rs.", names=PEERS)
    harness.define(values, "users", 2_000_000, "Users, rows of a table.")
    harness.define(values, "items", 500_000, "Items, rows of a table.")
    harness.define(values, "dim", 64, "Columns of both tables.")
    harness.define(values, "batch", 1024, "Examples of a step.", least=2)
    harness.define(values, "steps", 100, "Steps in a timed block; a slow side makes fewer.")
    text = "Percent of the rows in the caches of the _cache sides; at least 16 for each example."
    harness.define(values, "hot_share", 10, text)
    text = "Folder for the table in a file; empty is the folder of temporary files."
    harness.define(values, "folder", "", text)


def run(options: Any) -> Report:
    """Run every side `options.repeats` times, but those that lack memory or their library."""
    sides = [*options.sides, *options.peers]
    if not sides:
        raise UsageError("--sides and --peers leave nothing to measure; give more of them")
    packages = ["tensorflow", "keras", "numpy"]
    packages += ["keras-rs"] if importlib.util.find_spec("keras_rs") else []
    described = programs.describe(packages)
    names = ("users", "items", "dim", "batch", "steps", "hot_share")
    sizes = {name: getattr(options, name) for name in names}
    with temporary_folder("lexrow-benchmark-", options.folder or None) as folder:
        groups = {"": {side: {"side": side, "folder": folder, **sizes} for side in sides}}
        runs = programs.run_sides("keras_sides:measure", groups, options.repeats)[""]
    pairs = [(side, peer) for peer in options.peers for side in options.sides]
    title = (
        f"keras.fit with Adam, tables of {options.users:,} and {options.items:,} x {options.dim}, "
        f"{options.batch:,} examples a step by Zipf's law; {harness.count_runs(options)} a side"
    )
    return Report(title, described, [Table(runs, MEASURES, "", PEERS, pairs)])


if __name__ == "__main__":
    harness.main(define, run)
