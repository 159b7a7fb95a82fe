"""Compare recommenders in keras.fit with Adam: tables of each kind, stock Keras and keras-rs.

    python -m tests.benchmarks.keras --json=FILE

Two models are trained, each side of them in a process of its own, one at a time:

- two_tower: a tower for users and a tower for items, and a softmax over the items of the batch;
- dlrm: tables of very different sizes, one of which gives the mean of several rows, dense features,
  and the inner products of all pairs of vectors (Naumov et al. 2019, Ginart et al. 2019).

Ids are drawn by Zipf's law. All batches are drawn before the training begins, and the pipeline of
tf.data only takes slices of arrays in memory, so that no side waits for it.

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
from app.system.files import temporary_folder
from tests.benchmarks import harness, programs
from tests.benchmarks.harness import Measure, Report, Table

OURS = ("device", "device_jit", "host", "host_cache", "file", "file_cache", "sharded", "dynamic")
PEERS = ("keras", "keras_jit", "keras_rs")
MODELS = ("two_tower", "dlrm")
MEASURES = (
    Measure("steps_per_s", "steps/s", drawn=True),
    Measure("step_ms", "ms a step"),
    Measure("peak_bytes", "peak, GB", ",.2f", 1e9, drawn=True),
    Measure("own_peak_bytes", "without files", ",.2f", 1e9),
    Measure("table_bytes", "table and slots", ",.2f", 1e9),
    Measure("device_peak_bytes", "of the GPU", ",.2f", 1e9),
)
# A table of the DLRM with more rows has fewer columns, as in Ginart et al. 2019.
_LARGE_ROWS, _COLUMNS, _LARGE_COLUMNS = 1_000_000, 32, 16
_SEVERAL_IDS = 20  # of an example, in one table of the DLRM


def define(values: Any) -> None:
    """Define the flags of the case."""
    harness.define(values, "models", ",".join(MODELS), "Models to train.", names=MODELS)
    harness.define(values, "sides", ",".join(OURS), "Kinds of table of Lexrow.", names=OURS)
    text = "Stock Keras, with jit_compile, and keras-rs (if installed)."
    harness.define(values, "peers", ",".join(PEERS), text, names=PEERS)
    harness.define(values, "users", 2_000_000, "Users of the two towers.")
    harness.define(values, "items", 500_000, "Items of the two towers.")
    harness.define(values, "dim", 64, "Columns of the two tables of the two towers.")
    sizes = "10000,30000,100000,300000,500000,1000000,2000000,5000000"
    harness.define(values, "table_rows", sizes, "Rows of the tables of the DLRM.", numbers=1)
    harness.define(values, "batch", 1024, "Examples of a step.", least=2)
    harness.define(values, "steps", 100, "Steps in a timed block; a slow side makes fewer.")
    text = (
        "Percent of the rows in the caches of the _cache sides, or 16 rows for each id of a step."
    )
    harness.define(values, "hot_share", 10, text)
    text = "Folder for the table in a file; empty is the folder of temporary files."
    harness.define(values, "folder", "", text)


def run(options: Any) -> Report:
    """Run every side `options.repeats` times, but those that lack memory or their library."""
    features = [
        (f"feature_{number}", rows, _COLUMNS if rows < _LARGE_ROWS else _LARGE_COLUMNS)
        for number, rows in enumerate(options.table_rows)
    ]
    middle = f"feature_{len(features) // 2}"
    towers = [(name, getattr(options, name), options.dim, 1) for name in ("users", "items")]
    tables = {
        "two_tower": towers,
        "dlrm": [(*table, _SEVERAL_IDS if table[0] == middle else 1) for table in features],
    }
    packages = ["tensorflow", "keras", "numpy"]
    packages += ["keras-rs"] if importlib.util.find_spec("keras_rs") else []
    described = programs.describe(packages)
    sides = [*options.sides, *options.peers]
    if not options.models or not sides:
        raise UsageError("--models, --sides and --peers leave nothing to measure; give more")
    sizes = {name: getattr(options, name) for name in ("batch", "steps", "hot_share")}
    with temporary_folder("lexrow-benchmark-", options.folder or None) as folder:
        groups = {
            model: {
                side: {"model": model, "side": side, "tables": tables[model], "folder": folder}
                | sizes
                for side in sides
            }
            for model in options.models
        }
        measured = programs.run_sides("keras_sides:measure", groups, options.repeats)
    pairs = [(side, peer) for peer in options.peers for side in options.sides]
    shown = [Table(runs, MEASURES, model, PEERS, pairs) for model, runs in measured.items()]
    title = f"keras.fit with Adam, {options.batch:,} examples a step by Zipf's law"
    return Report(f"{title}; {harness.count_runs(options)} a side", described, shown)


if __name__ == "__main__":
    harness.main(define, run)
