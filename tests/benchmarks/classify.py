"""Compare lexrow.train --task=classify with fastText, on the same texts and splits.

    python -m tests.benchmarks.classify --corpus=FILE --json=FILE

A tenth of the texts, drawn for each repeat, is held out. Both sides train on the rest and predict
the labels of the tenth, for each length of n-grams. Each run is a process of its own, one at a
time. Texts are first written as `__label__` lines; this is not timed. The figures of a side:

- start to end: training and prediction, with imports;
- training without the import: the whole training process, with reading the texts and saving the
  model, without the time of a process that only imports the library;
- accuracy: the share of held-out texts whose predicted label is one of theirs;
- examples/s, once compiled: of the training loop, without the time before Lexrow's first report,
  which comes after half a second or the first call; see the note of the report for what each side
  does in the loop;
- peak memory: the most resident memory of a process, and the same without the peak of the import.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from app.errors import RunError, UsageError
from app.settings import CorpusConfig
from app.text import corpus
from tests.benchmarks import harness, peers, programs
from tests.benchmarks.harness import Measure, Report, Table
from tests.benchmarks.programs import OURS, Usage
from tests.benchmarks.words import read_lines

PEERS = {"fasttext": ("fasttext", "fasttext-wheel")}
MEASURES = (
    harness.TOTAL,
    Measure("beyond_import_seconds", "training without the import, s", ",.2f", drawn=True),
    *harness.scores(["accuracy"], ".4f"),
    Measure("later_examples_per_second", "examples/s, once compiled", ",.0f", drawn=True),
    Measure("train_seconds", "training loop, s", ",.2f"),
    harness.PEAK,
    harness.ABOVE_IMPORT,
)
PREFIX = "__label__"  # fastText's
_HELDOUT = 10  # one text of this many is held out
_FEWEST = 2 * _HELDOUT
# Like the files of the case, and a short time to the first report.
_FIXED = {"tokenizer": "whitespace", "label_prefix": PREFIX, "heldout_share": 0, "log_seconds": 0.5}
_REFUSED = ("task", "text_column", "label_column", "heldout", "vocab", "patience", "plan_only")
NOTE = (
    "In the training loop: Lexrow compiles its step, and takes texts that it read and split before."
    " fastText reads and splits the text in every epoch; its seconds are from its own progress "
    "line, without reading the dictionary and making the table."
)


class Split(NamedTuple):
    """Texts to train on and to predict.

    Attributes:
        train: The file of `__label__` lines to train on.
        examples: The number of its lines.
        test: The file of texts to predict, without labels.
        labels: The labels of each of these texts.
    """

    train: Path
    examples: int
    test: Path
    labels: list[list[str]]


def define(values: Any) -> None:
    """Define the flags of the case."""
    for name in ("dim", "epochs", "train_flags", "keep"):
        harness.define(values, name)
    harness.define(values, "corpus", "", "Labelled texts, lines like `__label__a the text`.")
    harness.define(values, "word_ngrams", "1,2", "Values of --word_ngrams.", numbers=1)
    text = "The learning rate of fastText. Its default of 0.1 is too low for few texts."
    harness.define(values, "fasttext_rate", 0.5, text, least=0)
    harness.define(values, "peers", "fasttext", "Peers to run beside Lexrow.", names=PEERS)


def run(options: Any) -> Report:
    """Run both sides `options.repeats` times with each length of n-grams."""
    shared = {"dim": options.dim, "epochs": options.epochs, "min_count": 1, "buckets": 2_000_000}
    fixed = {*shared, *_FIXED, *_REFUSED, "word_ngrams"}
    labelled = read(options.corpus)
    groups = {
        f"n-grams of up to {length} words" if length > 1 else "single words": {
            side: (side, length) for side in (OURS, *options.peers)
        }
        for length in options.word_ngrams
    }
    with programs.session(options, PEERS, fixed) as session:
        splits = [split(labelled, session.folder, n) for n in range(1, options.repeats + 1)]

        def run_one(job: tuple[str, int], seed: int) -> dict[str, Any]:
            (side, length), part = job, splits[seed - 1]
            folder = session.place(side, length, seed)
            settings = shared | {"word_ngrams": length, "seed": seed}
            train = _lexrow if side == OURS else _fasttext
            seconds, later, trained, predicted = train(part, folder, settings, options, session)
            return {
                "accuracy": accuracy(folder / "predictions.txt", part.labels),
                "later_examples_per_second": later,
                "train_seconds": seconds,
                "beyond_import_seconds": trained.seconds - session.imports[side].seconds,
                **session.costs(side, trained, predicted),
            }

        runs = harness.by_turns(groups, options.repeats, run_one)
    tables = [Table(own, MEASURES, title, PEERS) for title, own in runs.items()]
    title = (
        f"{len(labelled):,} texts, a tenth held out, epochs {options.epochs}, dim {options.dim}; "
        f"{harness.count_runs(options, 'split')}"
    )
    return Report(title, session.machine, tables, {"texts": len(labelled)}, [NOTE])


# The seconds of the training loop; the examples a second after the first report, None with one (of
# fastText, those of the whole loop); and the processes that train and predict.
_Times = tuple[float, float | None, Usage, Usage]


def _lexrow(part: Split, folder: Path, settings: dict, options: Any, session) -> _Times:
    """Run lexrow.train, then lexrow.predict, which writes predictions.txt in `folder`."""
    with tempfile.TemporaryDirectory(prefix="lexrow-run-") as workdir:
        given = _FIXED | settings | {"corpus": part.train, "workdir": workdir}
        trained, rows = programs.train("classify", session.train_flags, given, folder)
        wanted = part.examples * settings["epochs"]
        programs.check_count(OURS, rows[-1]["examples"], wanted, "examples")
        files = {"input": part.test, "output": folder / "predictions.txt"}
        log = folder / "predict.log"
        predicted = programs.command(["app.predict"], {"workdir": workdir}, log, **files)
    later = programs.later_speed(rows, "examples")
    return rows[-1]["train_seconds"], later, trained, predicted


def _fasttext(part: Split, folder: Path, settings: dict, options: Any, session) -> _Times:
    """Train by fastText on all cores in one process; another one writes predictions.txt."""
    more = {"lr": options.fasttext_rate, "seed": settings["seed"], "thread": programs.cores()}
    log = folder / "train.log"
    with tempfile.TemporaryDirectory(prefix="lexrow-run-") as place:
        job = {"method": "train_supervised", "settings": settings, "more": more}
        job |= {"model": f"{place}/model", "text": str(part.train)}
        _, trained = programs.run("peers:fasttext_train", job, log)
        job |= {"text": str(part.test), "predictions": str(folder / "predictions.txt")}
        _, predicted = programs.run("peers:fasttext_predict", job, folder / "predict.log")
    tokens = len(part.train.read_bytes().split()) + part.examples
    seconds = peers.fasttext_seconds(log, tokens * settings["epochs"], more["thread"])
    return seconds, part.examples * settings["epochs"] / seconds, trained, predicted


def read(files: str) -> list[tuple[list[str], list[str]]]:
    """Return the labels and the other words of each text.

    Args:
        files: The value of --corpus. A label is a word that begins with `__label__`.

    Raises:
        UsageError: The flag is not possible, a line has no label, or there are fewer than 20 texts.
    """
    found = []
    for line in read_lines(corpus.resolve(CorpusConfig(corpus=files)), sys.maxsize):
        labels = [word for word in line if word.startswith(PREFIX)]
        if not labels:
            start = " ".join(line)[:60]
            raise UsageError(f"no label in `{start}`; begin a line with {PREFIX}LABEL")
        found.append((labels, [word for word in line if not word.startswith(PREFIX)]))
    if len(found) < _FEWEST:
        raise UsageError(f"{len(found)} texts are too few to hold some out; give {_FEWEST}")
    return found


def split(labelled: Sequence[tuple[list[str], list[str]]], folder: Path, seed: int) -> Split:
    """Write a tenth of the texts, drawn at random, and the others, as two files in a folder."""
    order = np.random.default_rng(seed).permutation(len(labelled))
    parts = np.split(order, [len(labelled) // _HELDOUT])
    test, train = ([labelled[number] for number in part] for part in parts)
    paths = [folder / f"{name}-{seed}.txt" for name in ("train", "test")]
    written = [labels + words for labels, words in train], [words for _, words in test]
    for path, lines in zip(paths, written, strict=True):
        path.write_text("".join(" ".join(words) + "\n" for words in lines), encoding="utf-8")
    return Split(paths[0], len(train), paths[1], [labels for labels, _ in test])


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


if __name__ == "__main__":
    harness.main(define, run)
