"""Word vectors by each strategy of distribution, all processes on this one machine.

Sides train on the same text, in the same batches but for their order, one side at a time:

- none: one process;
- mirrored: one process with a replica on each GPU, where there are several;
- multi_worker N: N processes in step, through app.cluster;
- parameter_server N: N workers at their own pace, a chief, which also scores after each epoch while
  they go on, and the servers, through app.cluster.

Of each is measured:

- words/s: words of the text x epochs / seconds of the training loop (`train_seconds` of
  metrics.jsonl); and without what comes before the first report, in which TensorFlow compiles;
- processor seconds of all its processes for a million words, once compiled (Linux). They share the
  cores here, so that words/s cannot grow with workers: what the exchange costs is seen here;
- bytes: what a process sends in a step (`exchanged_bytes` of metrics.jsonl), and what all links
  carry for a word;
- calls that were made again, and the scores of the vectors.

Then, on the text and with the settings of the first side:

- the bytes that two replicas in one process exchange in a step, for several V: the same batches, on
  tables of few columns;
- a cost model: what one of N workers computes in a step is measured, without the others, for a
  batch that they share and for one that is N times as large; what a message takes is measured
  between two processes. The network is reckoned (see `scaling_model`).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ... import __name__ as PACKAGE
from ...config import CorpusConfig
from ...errors import RunError, UsageError
from ...evaluation import score_report as scoring
from ...system import host_memory
from ...tasks import trained_vectors
from ...text import corpus
from ..harness import child_processes, machine, trainer, trials
from ..harness.options import ScalingOptions, numbers
from ..harness.report import Report, results
from ..words.words_case import input_wait
from . import scaling_meter, scaling_model, scaling_report
from .scaling_meter import Mark
from .scaling_model import Reckoned

ONE = "none"
_SETTINGS = ("corpus", "dim", "epochs", "min_count", "batch_tokens")
# So that something is left after the first report of a short run.
_LOG_SECONDS = 2.0
_FIXED = {"task", "workdir", "strategy", "micro_batches", "log_seconds", "plan_only", "seed"}
# Of the in-process comparison: steps of a call and calls that are timed.
_EXCHANGE = {"steps": 4, "calls": 20}
# Tables that two replicas have, with an accumulator a row; and what is beside them, with what the
# making of a table takes for the while (TensorFlow 2.21.0).
_TABLES, _REPLICAS, _FLOAT, _BESIDE_BYTES = 2, 2, 4, 1.5e9


def run(options: ScalingOptions) -> Report:
    """Runs every side `options.repeats` times, then the rest, and reports.

    UsageError for a number, a corpus or a flag that cannot be; RunError when a side fails.
    """
    workers = numbers("workers", options.workers, "workers")
    sizes = numbers("vocabularies", options.vocabularies, "rows", least=2)
    modelled = numbers("modelled", options.modelled, "workers", least=2)
    gigabits = numbers("gigabits", options.gigabits, "Gbit/s")
    if modelled and not gigabits:
        raise UsageError("--gigabits= is empty; give at least one number, or --modelled=")
    train_flags = trainer.flags(options.train_flags, {*_SETTINGS, *_FIXED})
    sources = corpus.resolve(CorpusConfig(corpus=options.corpus))  # which may extract it
    described = machine.describe(["tensorflow", "numpy"])
    sides = _sides(workers, options.servers, len(described["accelerators"]))
    with tempfile.TemporaryDirectory(prefix="lexrow-bench-") as scratch:
        kept = Path(options.keep or scratch)
        folders = {
            (side, repeat): kept / f"{side.replace(' ', '-')}-{repeat + 1}"
            for side in sides
            for repeat in range(options.repeats)
        }
        for folder in folders.values():
            if folder.exists():
                raise UsageError(f"--keep={options.keep}: has {folder.name} already; give another")

        def run_one(side: str, repeat: int) -> dict[str, Any]:
            folder = folders[side, repeat]
            folder.mkdir(parents=True)
            settings = {name: getattr(options, name) for name in _SETTINGS}
            settings |= {"seed": repeat + 1, "log_seconds": _LOG_SECONDS}
            return _trained(side, sides[side], train_flags, settings, folder)

        found = results(
            trials.alternate(list(sides), options.repeats, run_one), scaling_report.MEASURES
        )
        workdir = folders[ONE, 0] / "workdir"
        exchanged = [_exchanged(options, workdir, rows, kept) for rows in sizes]
        step_words = found["sides"][ONE]["median"]["step_words"]
        model = _model(options, workdir, modelled, gigabits, step_words, kept) if modelled else None
    settings = {name: getattr(options, name) for name in (*_SETTINGS, "servers", "columns")}
    settings |= {"corpus": [Path(source).name for source in sources], "train_flags": train_flags}
    record = {
        "case": "scaling",
        "machine": described,
        "settings": settings,
        **found,
        "exchange": exchanged,
        "model": model,
    }
    words = found["sides"][ONE]["median"]["words"]
    return Report(
        scaling_report.title(options, words, described["cores"]),
        record,
        scaling_report.text(record),
        scaling_report.panels(record),
    )


def _sides(workers: Sequence[int], servers: int, gpus: int) -> dict[str, list[str]]:
    """What to run for each side, before the flags of app.train."""
    found = {ONE: [f"{PACKAGE}.train"]}
    if gpus > 1:
        found["mirrored"] = [f"{PACKAGE}.train", "--strategy=mirrored"]
    cluster = [f"{PACKAGE}.cluster"]
    for count in workers:
        found[f"multi_worker {count}"] = [*cluster, f"--workers={count}", "--"]
    for count in workers if servers else ():
        found[f"parameter_server {count}"] = [
            *cluster,
            f"--workers={count}",
            f"--ps={servers}",
            "--",
        ]
    return found


def _trained(
    side: str,
    program: Sequence[str],
    train_flags: Sequence[str],
    settings: dict[str, Any],
    folder: Path,
) -> dict[str, Any]:
    workdir = folder / "workdir"
    given = settings | {"workdir": workdir}
    with scaling_meter.measuring(workdir / "metrics.jsonl") as marks:
        usage, rows = trainer.train("words", train_flags, given, folder / "train.log", program)
    values = of_rows(rows, marks)
    if values["epoch"] < settings["epochs"]:
        raise RunError(
            f"{side} ended at epoch {values['epoch']} of {settings['epochs']}, so its speed means "
            "nothing; --keep=DIR keeps its log"
        )
    replicas = int(side.partition(" ")[2] or 1)
    carried = values["exchanged_bytes"]
    if carried is not None and side.startswith("multi_worker"):
        carried *= replicas * (replicas - 1)  # each sends its vector to all others
    scores = scoring.run(trained_vectors.load(workdir))
    return {
        **values,
        "bytes_per_word": None if carried is None else carried / values["step_words"],
        "total_seconds": usage.seconds,
        **{score.name: score.value for score in scores},
        "scores": scoring.summary(scores),
    }


def of_rows(rows: Sequence[Mapping[str, float]], marks: Sequence[Mark]) -> dict[str, Any]:
    """What metrics.jsonl tells of a run, and the processor's time as its lines came."""
    logged = [row for row in rows if "train_seconds" in row]  # others have scores
    first, last = logged[0], logged[-1]
    later = {name: last[name] - first[name] for name in ("words", "train_seconds")}
    return {
        "epoch": last["epoch"],
        "words": last["words"],
        "step_words": last["words"] / last["step"],
        "train_seconds": last["train_seconds"],
        "words_per_second": last["words"] / last["train_seconds"],
        "later_words_per_second": (
            later["words"] / later["train_seconds"] if later["train_seconds"] else None
        ),
        "processor_seconds": _processor_seconds(rows, marks),
        "input_wait": input_wait(logged),
        "exchanged_bytes": _mean_by_step(logged, "exchanged_bytes"),
        "calls_again": last.get("calls_again"),  # since the start
    }


def _processor_seconds(rows: Sequence[Mapping[str, float]], marks: Sequence[Mark]) -> float | None:
    """For a million words, between the first mark and the last."""
    known = [mark for mark in marks if "words" in rows[mark.lines - 1]]
    if not known:
        return None
    # Of processes that have ended nothing is seen.
    first, last = known[0], max(known, key=lambda mark: mark.seconds)
    words = rows[last.lines - 1]["words"] - rows[first.lines - 1]["words"]
    return 1e6 * (last.seconds - first.seconds) / words if words else None


def _mean_by_step(rows: Sequence[Mapping[str, float]], name: str) -> float | None:
    """The mean over steps of a value that every row has for the steps since the one before."""
    if any(name not in row for row in rows):
        return None
    total, previous = 0.0, 0
    for row in rows:
        total += row[name] * (row["step"] - previous)
        previous = row["step"]
    return total / previous


def _program(name: str, job: dict[str, Any], kept: Path) -> Any:
    """What a program of this case measured."""
    with tempfile.TemporaryDirectory(prefix="lexrow-bench-") as folder:
        result = Path(folder) / "result.json"
        spec = json.dumps(job | {"result": str(result)})
        arguments = ["-m", f"{PACKAGE}.benchmarks.scaling.{name}", spec]
        child_processes.run(name, arguments, kept / f"{name}.log")
        return json.loads(result.read_text(encoding="utf-8"))


def _exchanged(options: ScalingOptions, workdir: Path, rows: int, kept: Path) -> dict[str, Any]:
    """What replicas exchange with so many rows, or the reason under `left_out`."""
    own = (workdir / "vocab.tsv").read_bytes().count(b"\n")
    needed = _TABLES * _REPLICAS * rows * _FLOAT * (options.columns + 1) + _BESIDE_BYTES
    free = host_memory.free_bytes()
    if rows < own:
        return {"rows": rows, "left_out": f"the text has {own:,} words"}
    if needed > free:
        needs = f"would need {needed / 1e9:.1f} GB, {free / 1e9:.1f} are free"
        return {"rows": rows, "left_out": f"{needs}; give fewer --columns"}
    job = {"workdir": str(workdir), "rows": rows, "columns": options.columns}
    job |= {"batch_tokens": options.batch_tokens, **_EXCHANGE}
    return {"rows": rows, **_program("scaling_exchange", job, kept)}


def _model(
    options: ScalingOptions,
    workdir: Path,
    workers: Sequence[int],
    gigabits: list[int],
    step_words: float,
    kept: Path,
) -> dict[str, Any]:
    """What is measured for the cost model, and what follows from that."""
    batch = options.batch_tokens
    shares = [(1, batch), *((n, tokens) for n in workers for tokens in (batch, n * batch))]
    job = {"workdir": str(workdir), "columns": options.dim, "shares": shares}
    measured = _program("scaling_share", job, kept)
    message = options.message_us * 1e-6
    if not message:
        message = _program("scaling_message", {}, kept)["message_seconds"]
    reckoned = reckon(measured, batch, step_words, options.dim)
    return {
        "is_measured": False,
        "message_seconds": message,
        "step_words": step_words,
        "shares": measured,
        "reckoned": [one.record(gigabits, message) for one in reckoned],
    }


def reckon(
    shares: Sequence[Mapping[str, Any]], batch: int, step_words: float, columns: int
) -> list[Reckoned]:
    """From what `scaling_share` measured, each strategy with each number of workers.

    batch: tokens of a step of one process; step_words: the words of the corpus in it.
    """
    alone = next(share for share in shares if share["workers"] == 1)
    found = []
    for share in shares:
        workers, tokens = share["workers"], share["step_tokens"]
        if workers > 1 and "left_out" not in share:
            words = step_words * tokens / batch
            found.append(
                scaling_model.in_step(workers, tokens, words, share["seconds"], share["bytes"])
            )
    for workers in dict.fromkeys(share["workers"] for share in shares if share["workers"] > 1):
        of_rows = alone["rows"], columns
        found.append(
            scaling_model.at_own_pace(workers, batch, step_words, alone["seconds"], *of_rows)
        )
    return found
