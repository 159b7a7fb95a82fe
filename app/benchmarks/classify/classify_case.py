"""Labels of texts: `app.train --task=classify` beside fastText on the same texts and split.

A tenth of the texts, drawn anew at each repeat, is held out; both sides train on the rest and
predict the label of those, each in processes of its own, one at a time, for each length of n-grams.
Texts are written as `__label__` lines first; this is not timed. Of each side is measured:

- accuracy: the share of the texts held out whose predicted label is one of theirs;
- examples/s and words/s: of the training loop: ours by `train_seconds` of metrics.jsonl, in which
  TensorFlow's compilation counts; fastText's by its own progress line, without the reading of the
  dictionary and the making of the table. fastText reads and splits the text at every epoch, ours
  before the first. And without what comes before our first report, half a second or the first call
  after the start, in which TensorFlow compiles;
- training without the import, s: the whole training process, with reading the texts and saving the
  model, less a process that only imports the side's library;
- seconds end to end: both processes, imports included;
- peak memory: the most that a process had resident, and that less the peak of the import.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ... import __name__ as PACKAGE
from ...errors import RunError
from ..harness import child_processes, labelled_corpora, machine, trainer, trials
from ..harness.labelled_corpora import PREFIX, Split
from ..harness.options import ClassifyOptions, numbers
from ..harness.report import Measure, Panel, Report, panels, results, table
from ..harness.trainer import OURS, Peer

MEASURES = (
    Measure("accuracy", "accuracy", ".4f", better="higher", by_difference=True),
    Measure("examples_per_second", "examples/s of training", ",.0f", better="higher"),
    Measure("later_examples_per_second", "examples/s, once compiled", ",.0f", better="higher"),
    Measure("words_per_second", "words/s of training", ",.0f", better="higher"),
    Measure("train_seconds", "training loop, s", ",.2f", better="lower"),
    Measure("beyond_import_seconds", "training without the import, s", ",.2f", better="lower"),
    Measure("total_seconds", "end to end, s", ",.2f", better="lower"),
    Measure("peak_bytes", "peak memory, MB", ",.0f", per=1e6, better="lower"),
    Measure("peak_bytes_above_import", "peak above the import, MB", ",.0f", 1e6, "lower"),
)
_DRAWN = (
    "accuracy",
    "later_examples_per_second",
    "beyond_import_seconds",
    "peak_bytes_above_import",
)
_KINDS = {1: "words", 2: "pairs"}  # short, for the titles of panels
# A side that counts fewer examples than this share has not trained on the texts.
_ENOUGH = 0.9
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
# Of fastText's last progress line: words, labels and line ends that a thread goes through.
_SPEED = re.compile(r"words/sec/thread:\s*(\d+)")


class Job(NamedTuple):
    """One run of one side. settings: what both sides share, by the names of our flags."""

    folder: Path
    split: Split
    settings: dict[str, Any]
    train_flags: list[str]
    rate: float

    @property
    def predictions(self) -> Path:
        """Where the run leaves a line for each text: a label, and its probability."""
        return self.folder / "predictions.txt"


class Took(NamedTuple):
    """What a run took: seconds of the training loop, and its two processes.

    later: the examples after the first report, and their seconds; None if there was one report.
    """

    train_seconds: float
    later: tuple[float, float] | None
    trained: child_processes.Usage
    predicted: child_processes.Usage


def run(options: ClassifyOptions) -> Report:
    """Runs both sides `options.repeats` times with each length of n-grams, and reports.

    UsageError for a peer, a text or a flag that cannot be; RunError when a side fails.
    """
    sides = [OURS, *trainer.peers(options.peers, _PEERS, "classify")]
    lengths = numbers("word_ngrams", options.word_ngrams, "words")
    fixed = {*_shared(options, 1, 0), *_FIXED, "corpus", "workdir"}
    train_flags = trainer.flags(options.train_flags, fixed)
    texts = labelled_corpora.texts(options.corpus, options.labelled)
    described = machine.describe(["tensorflow", "numpy", *trainer.packages(sides[1:], _PEERS)])
    bare = {side: child_processes.importing(_LIBRARIES[side]) for side in sides}
    names = {f"{side}, {length}": (side, length) for length in lengths for side in sides}
    with tempfile.TemporaryDirectory(prefix="lexrow-bench-") as scratch:
        kept = Path(options.keep or scratch)
        splits = [labelled_corpora.split(texts, kept, repeat) for repeat in range(options.repeats)]

        def run_one(name: str, repeat: int) -> dict[str, Any]:
            side, length = names[name]
            folder = kept / f"{side}-{length}-{repeat + 1}"
            folder.mkdir(exist_ok=True)
            settings = _shared(options, length, repeat)
            job = Job(folder, splits[repeat], settings, train_flags, options.fasttext_rate)
            return _measured(side, job, bare[side])

        runs = trials.alternate(list(names), options.repeats, run_one)
    found = {
        length: results({side: runs[f"{side}, {length}"] for side in sides}, MEASURES)
        for length in lengths
    }
    settings = {"epochs": options.epochs, "dim": options.dim, "train_flags": train_flags}
    record = {
        "case": "classify",
        "machine": described,
        "settings": settings | {"fasttext_rate": options.fasttext_rate},
        "texts": len(texts),
        "imports": {side: usage._asdict() for side, usage in bare.items()},
        "word_ngrams": found,
    }
    text = "\n\n".join(f"{_about(n)}\n{table(own, MEASURES)}" for n, own in found.items())
    return Report(_title(options, len(texts)), record, text, _panels(found))


def _shared(options: ClassifyOptions, length: int, repeat: int) -> dict[str, Any]:
    shared = {"dim": options.dim, "epochs": options.epochs, "word_ngrams": length}
    return shared | {"min_count": 1, "buckets": 2_000_000, "seed": repeat + 1}


def _lexrow(job: Job) -> Took:
    with tempfile.TemporaryDirectory(prefix="lexrow-run-") as workdir:
        settings = _FIXED | job.settings | {"corpus": job.split.train, "workdir": workdir}
        log = job.folder / "train.log"
        trained, metrics = trainer.train("classify", job.train_flags, settings, log)
        wanted = job.split.examples * job.settings["epochs"]
        if metrics[-1]["examples"] < _ENOUGH * wanted:
            raise RunError(
                f"{OURS} trained on {metrics[-1]['examples']:,} examples, not on {wanted:,}, so "
                "its speed means nothing; --keep=DIR keeps its log"
            )
        predicted = child_processes.run(
            f"{PACKAGE}.predict",
            ["-m", f"{PACKAGE}.predict", f"--workdir={workdir}"],
            job.folder / "predict.log",
            job.split.test,
            job.predictions,
        )
    first, last = metrics[0], metrics[-1]
    later = [last[name] - first[name] for name in ("examples", "train_seconds")]
    return Took(last["train_seconds"], tuple(later) if later[1] else None, trained, predicted)


def _fasttext(job: Job) -> Took:
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
        program, log = (
            ["-m", f"{PACKAGE}.benchmarks.classify.fasttext_classifier"],
            job.folder / "train.log",
        )
        trained = child_processes.run("fasttext", [*program, json.dumps(spec)], log)
        spec |= {"text": str(job.split.test), "predictions": str(job.predictions)}
        predicted = child_processes.run(
            "fasttext", [*program, json.dumps(spec)], job.folder / "predict.log"
        )
    speeds = _SPEED.findall(log.read_text(encoding="utf-8", errors="replace"))
    tokens = len(job.split.train.read_bytes().split()) + job.split.examples
    seconds = tokens * job.settings["epochs"] / (int(speeds[-1]) * settings["thread"])
    examples = job.split.examples * job.settings["epochs"]
    return Took(seconds, (examples, seconds), trained, predicted)


SIDES = {OURS: _lexrow, "fasttext": _fasttext}
_PEERS = {"fasttext": Peer("fasttext", "fasttext-wheel")}
_LIBRARIES = {OURS: "tensorflow", "fasttext": "fasttext"}


def _measured(side: str, job: Job, bare: child_processes.Usage) -> dict[str, Any]:
    took, split = SIDES[side](job), job.split
    peak = max(took.trained.peak_bytes, took.predicted.peak_bytes)
    epochs = job.settings["epochs"]
    return {
        "accuracy": accuracy(job.predictions, split.labels),
        "examples_per_second": split.examples * epochs / took.train_seconds,
        "later_examples_per_second": took.later and took.later[0] / took.later[1],
        "words_per_second": split.words * epochs / took.train_seconds,
        "train_seconds": took.train_seconds,
        "beyond_import_seconds": took.trained.seconds - bare.seconds,
        "total_seconds": took.trained.seconds + took.predicted.seconds,
        "peak_bytes": peak,
        "peak_bytes_above_import": peak - bare.peak_bytes,
    }


def accuracy(predictions: Path, labels: Sequence[Sequence[str]]) -> float:
    """The share of texts whose predicted label is one of theirs; RunError for a line too few."""
    found = predictions.read_text(encoding="utf-8").split("\n")[:-1]
    if len(found) != len(labels):
        raise RunError(f"{predictions}: {len(found)} lines for {len(labels)} texts")
    named = [PREFIX + line.partition(" ")[0].removeprefix(PREFIX) for line in found]
    return float(np.mean([name in own for name, own in zip(named, labels, strict=True)]))


def _panels(found: dict[int, dict[str, Any]]) -> list[Panel]:
    drawn = [measure for measure in MEASURES if measure.key in _DRAWN]
    return [
        panel._replace(title=f"{_KINDS.get(length, length)}: {panel.measure.title.strip()}")
        for length, own in found.items()
        for panel in panels(own, drawn)
    ]


def _about(length: int) -> str:
    return "single words" if length == 1 else f"n-grams of up to {length} words"


def _title(options: ClassifyOptions, texts: int) -> str:
    runs = f"medians of {options.repeats} splits" if options.repeats > 1 else "one split"
    return f"{texts:,} texts, a tenth held out, epochs {options.epochs}, dim {options.dim}; {runs}"
