"""Compare where the tables of word vectors are stored, in runs of lexrow.train.

    python -m tests.benchmarks.tables --corpus=FILE --json=FILE

Every side trains skip-gram on the same text and vocabulary, in a process of its own for each
optimizer, one at a time:

- device: all rows in the memory of the device;
- host: rows in host memory, with a cache on the device for the given share of the rows;
- disk: the same, with the rows in a file, and 10 % of them in the cache;
- sharded: rows on all devices;
- dynamic: a row for each word, from its first occurrence;
- bfloat16: as device, with rows and slots in bfloat16, stochastically rounded.

The figures of a side: words/s, in all and after the first report, once TensorFlow has compiled; the
share of the time in which steps wait for rows; the bytes that a step moves to and from the device;
the share of lookups whose row was on the device; and the most resident memory of the process.
"""

from __future__ import annotations

import collections
from typing import Any

from app.errors import UsageError
from tests.benchmarks import harness, programs
from tests.benchmarks.harness import Measure, Report, Table
from tests.benchmarks.words import write_text

# The flags of lexrow.train of each side.
SIDES: dict[str, dict[str, Any]] = {
    "device": {},
    "host": {"table": "host"},
    "disk": {"table": "host", "table_file": "{folder}/rows"},
    "sharded": {"table": "sharded"},
    "dynamic": {"table": "dynamic", "cache": "none"},
    "bfloat16": {"table_dtype": "bfloat16", "slot_dtype": "bfloat16"},
}
OPTIMIZERS = ("lazy_adam", "rowwise_adagrad")
MEASURES = (
    harness.TOTAL,
    *harness.SPEEDS,
    Measure("stage_stall", "stall", ".1%"),
    Measure("staged_bytes", "MB moved a step", ",.2f", 1e6),
    Measure("stage_hit_rate", "hits", ".1%"),
    harness.PEAK,
)
_DISK_HOT = 10  # percent of the rows in the cache
_SETTINGS = ("dim", "epochs", "min_count", "batch_tokens")
_REFUSED = ("task", "optimizer", "table", "table_file", "table_dtype", "slot_dtype", "hot_rows")


def define(values: Any) -> None:
    """Define the flags of the case."""
    for name in ("corpus", "dim", "epochs", "min_count", "train_flags", "keep"):
        harness.define(values, name)
    harness.define(values, "sides", help="Kinds of table to measure.", names=SIDES)
    harness.define(values, "optimizers", help="Optimizers to measure.", names=OPTIMIZERS)
    text = "Percent of the rows of the host table in the cache on the device, a side each."
    harness.define(values, "hot_shares", "1,10,50,100", text, numbers=1)
    harness.define(values, "batch_tokens", 4096, "Tokens of a step.")


def run(options: Any) -> Report:
    """Run every side `options.repeats` times; logs are kept only in `options.keep`."""
    hot = {"host": options.hot_shares, "disk": [_DISK_HOT]}
    sides = [(side, share) for side in options.sides for share in hot.get(side, [None])]
    groups = {
        optimizer: {
            side if share is None else f"{side}, {share} % hot": (optimizer, side, share)
            for side, share in sides
        }
        for optimizer in options.optimizers
    }
    if not any(groups.values()):
        raise UsageError("--optimizers and --sides leave nothing to measure; give more of them")
    with programs.session(options, {}, {*_SETTINGS, *_REFUSED}) as session:
        text = session.scratch / "corpus.txt"
        words = write_text(options.corpus, text)["words"]
        tally = collections.Counter(text.read_text(encoding="utf-8").split())
        rows = sum(count >= options.min_count for count in tally.values())

        def run_one(job: tuple[str, str, int | None], seed: int) -> dict[str, Any]:
            optimizer, side, share = job
            folder = session.place(*job, seed)
            settings = {name: getattr(options, name) for name in _SETTINGS}
            settings |= {"corpus": text, "workdir": folder / "workdir", "seed": seed}
            settings |= {"optimizer": optimizer, "tokenizer": "whitespace", "log_seconds": 1}
            settings |= {name: v.format(folder=folder) for name, v in SIDES[side].items()}
            if share is not None:
                settings["hot_rows"] = max(1, rows * share // 100)
            usage, lines = programs.train("words", session.train_flags, settings, folder)
            staged = ("stage_stall", "staged_bytes", "stage_hit_rate")
            moved = {name: programs.mean(lines, name, "step") for name in staged}
            return programs.speeds(usage, lines) | moved | {"peak_bytes": usage.peak_bytes}

        measured = harness.by_turns(groups, options.repeats, run_one)
    tables = [Table(runs, MEASURES, title) for title, runs in measured.items()]
    title = (
        f"Tables of {rows:,} x {options.dim}, {words:,} words, epochs {options.epochs}, "
        f"{options.batch_tokens:,} tokens a step; {harness.count_runs(options)} a side"
    )
    return Report(title, session.machine, tables)


if __name__ == "__main__":
    harness.main(define, run)
