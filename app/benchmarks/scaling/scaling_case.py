"""Train word vectors by each strategy of distribution, with all processes on this machine.

The sides train one at a time on the same text, in the same batches but for their order:

- none: one process;
- mirrored: one process with a replica on each GPU, if there are several;
- multi_worker N: N processes that train in step, by lexrow.cluster;
- multi_worker N sync S: N processes that exchange changes every S steps, each with a batch of its
  own;
- parameter_server N: by lexrow.cluster, N workers at their own pace, the servers, and a chief that
  scores after each epoch.

The figures of a side:

- words/s: words of the text x epochs / `train_seconds` of metrics.jsonl; and the same after the
  first report, once TensorFlow has compiled;
- processor seconds of all its processes for a million words, once compiled (Linux): the cost of
  the exchange. Words/s cannot grow with workers, as all processes share the cores of this machine;
- bytes that a process sends in a step (`exchanged_bytes` of metrics.jsonl), and that all links
  carry for a word;
- the number of repeated calls, and the scores of the vectors.

Two further parts use the text and the settings of the first side: the bytes that two replicas
exchange, by size V of the vocabulary (`scaling_programs`); and a model of the speed of N workers on
machines of their own (`scaling_model`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ... import __name__ as PACKAGE
from ...config import CorpusConfig
from ...errors import RunError, UsageError
from ...evaluation import score_report
from ...tasks import trained_vectors
from ...text import corpus
from ..harness import machine, programs, report, trainer, trials
from ..harness.option_values import numbers
from ..harness.options import ScalingOptions
from ..harness.report import Lines, Measure, Panel, Result, Row, Table
from . import scaling_meter, scaling_tables
from .scaling_model import LocalSide, predict

ONE = "none"
_PROGRAM = "scaling.scaling_programs"
_SPEED = Measure("words_per_second", "words/s of training", ",.0f", better="higher")
_LATER = Measure(
    "later_words_per_second", "words/s, once compiled", ",.0f", better="higher", drawn=True
)
MEASURES = (
    _SPEED,
    _LATER,
    Measure("of_one", "  of one process", ".2f", better="higher"),
    Measure("processor_seconds", "processor s a million words", ",.2f", 1, "lower", drawn=True),
    Measure("input_wait", "waiting for input", ".1%", better="lower"),
    Measure("exchanged_bytes", "KB a step", ",.0f", per=1e3, better="lower"),
    Measure("bytes_per_word", "bytes a word", ",.0f", better="lower"),
    Measure("calls_again", "repeated calls", ",.0f", better="lower"),
    Measure("total_seconds", "end to end, s", ",.1f", better="lower"),
    *(report.score_measure(n, drawn=n != "simlex999") for n in score_report.benchmarks),
    Measure("words", "words", ",.0f"),
    Measure("step_words", "words a step", ",.0f"),
)
_SETTINGS = ("corpus", "dim", "epochs", "min_count", "batch_tokens")
_LOG_SECONDS = 2.0  # so that a short run has several reports, too
_FIXED = {
    "sync_steps",
    "task",
    "workdir",
    "strategy",
    "micro_batches",
    "log_seconds",
    "plan_only",
    "seed",
}
# An empty message between two processes, on two cores of an AMD EPYC (see data/benchmarks).
_MESSAGE_US = 1400.0
# Of the exchange: steps of a call, and timed calls.
_EXCHANGE = {"steps": 4, "calls": 20}
# Memory of the exchange: tables of two replicas with their accumulators; all else (TF 2.21.0).
_TABLES, _REPLICAS, _FLOAT, _BESIDE_BYTES = 2, 2, 4, 1.5e9


def run(options: ScalingOptions) -> Result:
    """Run every side `options.repeats` times, then the exchange and the model.

    The workdirs and logs are kept only in `options.keep`.

    Args:
        options: The settings of the case.

    Raises:
        UsageError: A number, the corpus or a flag is not possible, or a kept folder exists already.
        RunError: A side failed.
    """
    sizes = numbers(options.vocabularies)
    modelled = numbers(options.modelled)
    gigabits = numbers(options.gigabits)
    if modelled and not gigabits:
        raise UsageError("--gigabits= is empty; give at least one number, or --modelled=")
    train_flags = trainer.flags(options.train_flags, {*_SETTINGS, *_FIXED})
    sources = corpus.resolve(CorpusConfig(corpus=options.corpus))  # may extract the corpus
    described = machine.describe(["tensorflow", "numpy"])
    sides = _sides(options, len(described["accelerators"]))
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
            """Train a side with seed `repeat + 1` in a folder that is made; return its figures."""
            folder = folders[side, repeat]
            folder.mkdir(parents=True)
            settings = {name: getattr(options, name) for name in _SETTINGS}
            settings |= {"seed": repeat + 1, "log_seconds": _LOG_SECONDS}
            return _train(sides[side], train_flags, settings, folder)

        runs = trials.alternate(list(sides), options.repeats, run_one)
        table = report.make_table(runs, MEASURES)
        _compare_with_one(table)
        workdir = folders[ONE, 0] / "workdir"
        exchanged = [_exchange(options, workdir, rows, kept) for rows in sizes]
        step_words = table.rows[0].median["step_words"]
        local = _measured_local(table, sides)
        model = _predict(options, workdir, step_words, local) if modelled else None
    settings = {name: getattr(options, name) for name in (*_SETTINGS, "servers", "columns")}
    settings |= {"corpus": [Path(source).name for source in sources], "train_flags": train_flags}
    figures = {**report.sides_record(table), "exchange": exchanged, "model": model}
    title = (
        f"{table.rows[0].median['words'] / options.epochs:,.0f} words, epochs {options.epochs}, "
        f"dim {options.dim}, {options.batch_tokens:,} tokens a step; all processes of a side share "
        f"{described['cores']} cores; {options.count_runs()} a side"
    )
    panels: list[Panel | Lines] = [*report.make_panels(table, ours=len(sides))]
    tables = [table._replace(measures=MEASURES[:-2], compared=())]
    if exchanged:
        shown, lines = scaling_tables.exchange(exchanged)
        tables.append(shown)
        panels += lines
    if model:
        tables.append(scaling_tables.model(model, gigabits, options.batch_tokens))
        panels += scaling_tables.model_panels(model, options.batch_tokens)
    return Result("scaling", title, described, settings, tables, figures, panels)


class Side(NamedTuple):
    """A way to train.

    Attributes:
        program: The module to run and its arguments before the flags.
        flags: The flags of this side alone.
        workers: The number of processes that train.
        batches: The number of batches of one process in a step.
    """

    program: list[str]
    flags: dict[str, Any] = {}
    workers: int = 1
    batches: int = 1

    @property
    def sync_steps(self) -> int:
        """Return the steps between two exchanges."""
        return self.flags.get("sync_steps", 1)

    @property
    def is_in_step(self) -> bool:
        """Return whether the processes are replicas."""
        return self.workers > 1 and not any(a.startswith("--ps") for a in self.program)


def _sides(options: ScalingOptions, gpus: int) -> dict[str, Side]:
    """Return the sides by name; `none` is the first."""
    sides = {ONE: Side([f"{PACKAGE}.train"])}
    if gpus > 1:
        sides["mirrored"] = Side([f"{PACKAGE}.train", "--strategy=mirrored"])
    workers = numbers(options.workers)
    for count in workers:
        program = [f"{PACKAGE}.cluster", f"--workers={count}", "--"]
        sides[f"multi_worker {count}"] = Side(program, workers=count)
        for steps in numbers(options.sync_steps) if count > 1 else ():
            flags = {"sync_steps": steps}
            sides[f"multi_worker {count} sync {steps}"] = Side(program, flags, count, count)
    for count in workers if options.servers else ():
        program = [f"{PACKAGE}.cluster", f"--workers={count}", f"--ps={options.servers}", "--"]
        sides[f"parameter_server {count}"] = Side(program, workers=count)
    return sides


def _train(
    side: Side, train_flags: Sequence[str], settings: dict[str, Any], folder: Path
) -> dict[str, Any]:
    """Train one side with its workdir and log in `folder`, and return its figures and scores.

    Raises RunError if it stopped early.
    """
    workdir = folder / "workdir"
    settings = {**settings, **side.flags, "workdir": workdir}
    settings["batch_tokens"] *= side.batches
    with scaling_meter.measuring(workdir / "metrics.jsonl") as marks:
        usage, rows = trainer.train(
            "words", train_flags, settings, folder / "train.log", side.program
        )
    values = scaling_meter.read_metrics(rows, marks)
    if values["epoch"] < settings["epochs"]:
        raise RunError(
            f"{folder.name} ended at epoch {values['epoch']} of {settings['epochs']}, so its speed "
            "means nothing; --keep=DIR keeps its log"
        )
    carried = values["exchanged_bytes"]
    if carried is not None and side.is_in_step:
        carried *= side.workers * (side.workers - 1)  # each replica sends to all others
    scores = score_report.run(trained_vectors.load(workdir))
    return {
        **values,
        "bytes_per_word": None if carried is None else carried / values["step_words"],
        "total_seconds": usage.seconds,
        **{score.name: score.value for score in scores},
        "scores": score_report.summary(scores),
    }


def _compare_with_one(table: Table) -> None:
    """Add `of_one` to medians: words/s (once compiled, if both have it) over the first row's."""
    for row in table.rows:
        later, whole = (report.ratio(measure, row, table.rows[0]) for measure in (_LATER, _SPEED))
        row.median["of_one"] = later or whole


def _exchange(options: ScalingOptions, workdir: Path, rows: int, kept: Path) -> dict[str, Any]:
    """Measure the exchange of two replicas with `rows` rows, or return the reason as `left_out`.

    `workdir` is that of a finished run. The log goes to the folder `kept`.
    """
    own = (workdir / "vocab.tsv").read_bytes().count(b"\n")
    needed = _TABLES * _REPLICAS * rows * _FLOAT * (options.columns + 1) + _BESIDE_BYTES
    if rows < own:
        return {"rows": rows, "left_out": f"the text has {own:,} words"}
    if missing := machine.missing_memory(needed):
        return {"rows": rows, "left_out": f"{missing}; give fewer --columns"}
    job = {"workdir": str(workdir), "rows": rows, "columns": options.columns}
    job |= {"batch_tokens": options.batch_tokens, **_EXCHANGE}
    log = kept / "scaling_exchange.log"
    return {"rows": rows, **programs.run("exchange", _PROGRAM, job | {"part": "exchange"}, log)[0]}


def _measured_local(table: Table, sides: Mapping[str, Side]) -> list[LocalSide]:
    """Return the figures of the sides of two workers with --sync_steps, for the model."""

    def known(row: Row, *names: str) -> float:
        """Return the first of these figures that the runs have."""
        return next(value for name in names if (value := row.median[name]) is not None)

    names = "later_words_per_second", "words_per_second"
    speeds = {row.name: known(row, *names) for row in table.rows}
    return [
        LocalSide(
            sides[row.name].sync_steps,
            speeds[row.name],
            known(row, "bytes_per_word"),
            known(row, "step_words") / 2,
            speeds[ONE],
        )
        for row in table.rows
        if sides[row.name].sync_steps > 1 and sides[row.name].workers == 2
    ]


def _predict(
    options: ScalingOptions, workdir: Path, step_words: float, local: Sequence[LocalSide]
) -> dict[str, Any]:
    """Measure the costs of a step in its own process, and predict the speeds of workers from them.

    `workdir` is that of a finished run, `step_words` are words of the corpus in a step of one
    process, `local` is what was measured with --sync_steps. Returns the result of `measure_costs`,
    `is_measured` (False), `message_seconds` (an option or a constant), `step_words`, and under
    `reckoned` the result of `predict`.
    """
    batch, gigabits = options.batch_tokens, numbers(options.gigabits)
    job = {"workdir": str(workdir), "batch_tokens": batch, "columns": options.dim}
    job |= {"workers": numbers(options.modelled), "part": "model"}
    costs, _ = programs.run("model", _PROGRAM, job)
    message = 1e-6 * (options.message_us or _MESSAGE_US)
    return {
        "is_measured": False,
        "message_seconds": message,
        "step_words": step_words,
        **costs,
        "reckoned": predict(costs, batch, step_words, options.dim, gigabits, message, local),
    }
