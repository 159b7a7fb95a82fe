"""Compare lexrow.train --task=classify with fastText, on the same texts and splits.

A tenth of the texts, drawn for each repeat, is held out. Both sides train on the rest and predict
the labels of the tenth, for each length of n-grams. Each run is a process of its own, one at a
time. Texts are first written as `__label__` lines; this is not timed. The figures of a side:

- accuracy: the share of held-out texts whose predicted label is one of theirs;
- examples/s and words/s of the training loop. Lexrow's is `train_seconds` of metrics.jsonl, with
  TensorFlow's compilation. fastText's is from its own progress line, without reading the dictionary
  and making the table. fastText reads and splits the text in every epoch, Lexrow before the first;
- examples/s, once compiled: without the time before Lexrow's first report, which comes after half a
  second or the first call;
- training without the import, s: the whole training process, with reading the texts and saving the
  model, without the time of a process that only imports the library;
- seconds end to end: training and prediction, with imports;
- peak memory: the most resident memory of a process, and the same without the peak of the import.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ... import __name__ as PACKAGE
from ...errors import RunError
from ...system import processes
from ..harness import labelled_corpora, machine, programs, report, trainer, trials
from ..harness.fasttext_log import train_seconds
from ..harness.labelled_corpora import PREFIX, Split
from ..harness.option_values import numbers
from ..harness.options import ClassifyOptions
from ..harness.report import Measure, Result
from ..harness.trainer import OURS, Peer

MEASURES = (
    report.score_measure("accuracy", ".4f", drawn=True),
    Measure("examples_per_second", "examples/s of training", ",.0f", better="higher"),
    Measure(
        "later_examples_per_second", "examples/s, once compiled", ",.0f", 1, "higher", drawn=True
    ),
    Measure("words_per_second", "words/s of training", ",.0f", better="higher"),
    Measure("train_seconds", "training loop, s", ",.2f", better="lower"),
    Measure(
        "beyond_import_seconds", "training without the import, s", ",.2f", 1, "lower", drawn=True
    ),
    Measure("total_seconds", "end to end, s", ",.2f", better="lower"),
    Measure("peak_bytes", "peak memory, MB", ",.0f", per=1e6, better="lower"),
    trainer.ABOVE_IMPORT,
)
_KINDS = {1: "words", 2: "pairs"}  # short names for the titles of panels
_FIXED = {
    "task": "classify",
    "tokenizer": "whitespace",
    "label_prefix": PREFIX,
    "text_column": "",
    "label_column": "",
    "heldout": "",
    "heldout_share": 0,
    "log_seconds": 0.5,
    "vocab": "",
    "patience": 0,
    "plan_only": False,
}


class Job(NamedTuple):
    """One run of one side.

    Attributes:
        folder: The folder for the files of the run.
        split: The texts.
        settings: The settings of both sides, by flags of lexrow.train.
        train_flags: Further flags of lexrow.train.
        rate: The learning rate of fastText.
    """

    folder: Path
    split: Split
    settings: dict[str, Any]
    train_flags: list[str]
    rate: float

    @property
    def predictions(self) -> Path:
        """The file with a line for each text: a label, and its probability."""
        return self.folder / "predictions.txt"


class Times(NamedTuple):
    """The times of a run.

    Attributes:
        train_seconds: The seconds of the training loop.
        later_speed: The examples a second after the first report; None with one report. Of
            fastText, those of the whole training.
        trained: The time and memory of the process that trains.
        predicted: The time and memory of the process that predicts.
    """

    train_seconds: float
    later_speed: float | None
    trained: processes.Usage
    predicted: processes.Usage


def run(options: ClassifyOptions) -> Result:
    """Run both sides `options.repeats` times with each length of n-grams.

    Texts, predictions and logs are kept only in `options.keep`.

    Args:
        options: The settings of the case.

    Raises:
        UsageError: A peer, a text or a flag is not possible.
        RunError: A side failed, or Lexrow trained on too few examples.
    """
    sides = trainer.sides(options.peers, _PEERS, "classify")
    lengths = numbers(options.word_ngrams)
    fixed = {*_shared(options, 1, 0), *_FIXED, "corpus", "workdir"}
    train_flags = trainer.flags(options.train_flags, fixed)
    texts = labelled_corpora.read(options.corpus, options.labelled)
    described, bare = trainer.measure_imports(sides, _PEERS)
    names = {f"{side}, {length}": (side, length) for length in lengths for side in sides}
    with tempfile.TemporaryDirectory(prefix="lexrow-bench-") as scratch:
        kept = Path(options.keep or scratch)
        splits = [labelled_corpora.split(texts, kept, repeat) for repeat in range(options.repeats)]

        def run_one(name: str, repeat: int) -> dict[str, Any]:
            """Run a side with its length of n-grams on the split of the repeat; return figures."""
            side, length = names[name]
            folder = kept / f"{side}-{length}-{repeat + 1}"
            folder.mkdir(exist_ok=True)
            settings = _shared(options, length, repeat)
            job = Job(folder, splits[repeat], settings, train_flags, options.fasttext_rate)
            return _measure(side, job, bare[side])

        runs = trials.alternate(list(names), options.repeats, run_one)
    by_length = {}
    for length in lengths:
        own = {side: runs[f"{side}, {length}"] for side in sides}
        heading = "single words" if length == 1 else f"n-grams of up to {length} words"
        by_length[length] = report.make_table(own, MEASURES, heading)
    settings = {name: getattr(options, name) for name in ("epochs", "dim", "fasttext_rate")}
    settings |= {"train_flags": train_flags}
    figures = {
        "texts": len(texts),
        "imports": {side: usage._asdict() for side, usage in bare.items()},
        "word_ngrams": {length: report.sides_record(table) for length, table in by_length.items()},
    }
    panels = [
        panel
        for length, table in by_length.items()
        for panel in report.make_panels(table, f"{_KINDS.get(length, length)}: {{}}")
    ]
    title = (
        f"{len(texts):,} texts, a tenth held out, epochs {options.epochs}, dim {options.dim}; "
        f"{options.count_runs('split')}"
    )
    tables = list(by_length.values())
    return Result("classify", title, described, settings, tables, figures, panels)


def _shared(options: ClassifyOptions, length: int, repeat: int) -> dict[str, Any]:
    """Return the settings of both sides by flag of lexrow.train; the seed is `repeat + 1`.

    `length` is the value of --word_ngrams.
    """
    shared = {"dim": options.dim, "epochs": options.epochs, "word_ngrams": length}
    return shared | {"min_count": 1, "buckets": 2_000_000, "seed": repeat + 1}


def _lexrow(job: Job) -> Times:
    """Run lexrow.train, then lexrow.predict, which writes `job.predictions`.

    Raises RunError if fewer than 90 % of the examples were trained on.
    """
    with tempfile.TemporaryDirectory(prefix="lexrow-run-") as workdir:
        settings = _FIXED | job.settings | {"corpus": job.split.train, "workdir": workdir}
        log = job.folder / "train.log"
        trained, metrics = trainer.train("classify", job.train_flags, settings, log)
        wanted = job.split.examples * job.settings["epochs"]
        trainer.check_count(OURS, metrics[-1]["examples"], wanted, "examples")
        files = {"input": job.split.test, "output": job.predictions}
        log = job.folder / "predict.log"
        predicted = trainer.run([f"{PACKAGE}.predict"], {"workdir": workdir}, log, **files)
    speed = trainer.later_speed(metrics, "examples")
    return Times(metrics[-1]["train_seconds"], speed, trained, predicted)


def _fasttext(job: Job) -> Times:
    """Train by fastText on all cores in one process; another one writes `job.predictions`.

    The seconds of training are computed from the speed in the last progress line of its log. A log
    without such a line is an IndexError.
    """
    with tempfile.TemporaryDirectory(prefix="lexrow-run-") as folder:
        settings = {
            "lr": job.rate,
            "dim": job.settings["dim"],
            "epoch": job.settings["epochs"],
            "wordNgrams": job.settings["word_ngrams"],
            "bucket": job.settings["buckets"],
            "minCount": job.settings["min_count"],
            "seed": job.settings["seed"],
            "thread": machine.cores(),
        }
        spec = {"model": f"{folder}/model.bin", "text": str(job.split.train), "settings": settings}
        program, log = "classify.fasttext_classifier", job.folder / "train.log"
        _, trained = programs.run("fasttext", program, spec, log)
        spec |= {"text": str(job.split.test), "predictions": str(job.predictions)}
        _, predicted = programs.run("fasttext", program, spec, job.folder / "predict.log")
    tokens = len(job.split.train.read_bytes().split()) + job.split.examples
    seconds = train_seconds(log, tokens * job.settings["epochs"], settings["thread"])
    examples = job.split.examples * job.settings["epochs"]
    return Times(seconds, examples / seconds, trained, predicted)


SIDES = {OURS: _lexrow, "fasttext": _fasttext}
_PEERS = {"fasttext": Peer("fasttext", "fasttext-wheel")}


def _measure(side: str, job: Job, bare: processes.Usage) -> dict[str, Any]:
    """Run a side, and return its figures; `bare` is of a process that only imports its library."""
    times, split = SIDES[side](job), job.split
    peak = max(times.trained.peak_bytes, times.predicted.peak_bytes)
    epochs = job.settings["epochs"]
    return {
        "accuracy": accuracy(job.predictions, split.labels),
        "examples_per_second": split.examples * epochs / times.train_seconds,
        "later_examples_per_second": times.later_speed,
        "words_per_second": split.words * epochs / times.train_seconds,
        "train_seconds": times.train_seconds,
        "beyond_import_seconds": times.trained.seconds - bare.seconds,
        "total_seconds": times.trained.seconds + times.predicted.seconds,
        "peak_bytes": peak,
        "peak_bytes_above_import": peak - bare.peak_bytes,
    }


def accuracy(predictions: Path, labels: Sequence[Sequence[str]]) -> float:
    """Return the share of texts whose predicted label is one of their own.

    Args:
        predictions: The file with a line for each text: a label without blanks, with or without
            `__label__`, and its probability after a tab or a blank. An empty line is a wrong label.
        labels: The labels of each text, with `__label__`.

    Raises:
        RunError: The file has another number of lines than there are texts.
    """
    lines = predictions.read_text(encoding="utf-8").split("\n")[:-1]
    if len(lines) != len(labels):
        raise RunError(f"{predictions}: {len(lines)} lines for {len(labels)} texts")
    named = [PREFIX + re.split("[ \t]", line)[0].removeprefix(PREFIX) for line in lines]
    return float(np.mean([name in own for name, own in zip(named, labels, strict=True)]))
