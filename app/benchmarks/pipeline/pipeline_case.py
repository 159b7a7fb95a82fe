"""Input pipelines: what people write beside ours, and whether a training waits for them.

Three parts; each side is a process of its own, one at a time.

classifier: a case often asked about in public: 10,000 examples of 20 words, an embedding of
1,000 x 100, their mean, a sigmoid, Adam at 0.001 (see `pipeline_examples`, `pipeline_classifier`).

- naive: split and look up an example at a time, batches of 32, nothing ahead; keras.fit;
- prefetch: the same in batches of 128, with a prefetch;
- parallel: the same with a parallel map of a preprocessing that is heavy on the processor
  (Unicode normalisation, case folding, a tokenizer of scripts, regular expressions);
- ours: that heavy preprocessing, of 1,024 examples at a time; ids kept from the first epoch;
  batches of 128; the trainer's steps on a table, 16 a call.

Examples/s are the median over epochs, the first left out. Accuracy is that of the classifier in the
end, on the examples that it was trained on: a batch of 32 makes four times the steps an epoch. Ours
in batches of 32, 64 steps a call, made 101 to 189 thousand examples/s where naive made 10 to 17 by
turns, and came to 0.988 where naive came to 0.991 (three runs, two cores that others used too).

text: from text to ids, unknown words dropped: by a Python generator and by a map, a line at a time;
vectorised, by blocks of text in a parallel map, as the trainer does; from cached ids. All read the
same plain file. Words/s are of passes that take seconds together, after a first one. A generator or
a map costs so much a line; lines are those of the corpus, cut where they have more than 20 words.
With lines of 1,000 words vectorised is but about four times as fast as a generator.

trainer: `app.train` on the corpus, which is read and tokenised at every epoch.

Waiting is the share of the time that a loop spends asking for the next batch, without the first
epoch or, of the trainer, the first interval of metrics.jsonl, in which it traces.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ... import __name__ as PACKAGE
from ...config import CorpusConfig
from ...errors import RunError, UsageError
from ...text import corpus
from ..harness import child_processes, lines, machine, trials
from ..harness.options import PipelineOptions, chosen
from ..harness.report import Report, results
from . import pipeline_report

# Part -> its sides, ours first.
SIDES = {
    "trainer": ("trainer",),
    "classifier": ("ours", "naive", "prefetch", "parallel"),
    "text": ("vectorised", "cached", "map", "generator"),
}
PEERS = ("naive", "prefetch", "parallel", "generator", "map")

# Text without lines gets such as the examples of the classifier have, and as the docstrings have on
# average (21 words a line).
_LINE_WORDS = 20
# So short an interval leaves little out with the first one.
_LOG_SECONDS = 1


class Text(NamedTuple):
    """What all the ways from text to ids take. vocabulary: that of the trainer, once it has run."""

    file: Path
    words: int
    bytes: int
    vocabulary: Path


def run(options: PipelineOptions) -> Report:
    """Runs every side `options.repeats` times and reports.

    UsageError for a peer, a corpus or a flag that cannot be; RunError when a side fails, and when
    two ways give different numbers of tokens.
    """
    peers = chosen("peers", options.peers, PEERS, "peer of pipeline")
    train_flags = _train_flags(options)
    sources = corpus.resolve(CorpusConfig(corpus=options.corpus))
    parts = {
        part: [side for side in sides if side not in PEERS or side in peers]
        for part, sides in SIDES.items()
    }
    part_of = {side: part for part, sides in parts.items() for side in sides}
    described = machine.describe(["tensorflow", "keras", "tensorflow-text", "numpy"])
    with tempfile.TemporaryDirectory(prefix="lexrow-bench-") as scratch:
        folder = Path(scratch)
        text = _text(sources, options, folder)

        def run_one(side: str, repeat: int) -> dict[str, Any]:
            if side == "trainer":
                return _trained(options, train_flags, repeat, text, folder)
            job: dict[str, Any] = {"side": side}
            if part_of[side] == "classifier":
                job |= {"examples": options.examples, "epochs": options.example_epochs}
                job |= {"seed": repeat + 1}
            else:
                job |= {"text": str(text.file), "words": text.words}
                job |= {"tokenizer": options.tokenizer, "vocabulary": str(text.vocabulary)}
            return _measured(f"{PACKAGE}.benchmarks.pipeline.pipeline_{part_of[side]}", job, folder)

        runs = trials.alternate(list(part_of), options.repeats, run_one)
    _check(runs, parts["text"])
    found = {
        part: results({side: runs[side] for side in sides}, pipeline_report.MEASURES[part])
        for part, sides in parts.items()
    }
    record = {
        "case": "pipeline",
        "machine": described,
        "settings": _settings(options) | {"train_flags": train_flags},
        "corpus": {
            "files": [Path(source).name for source in sources],
            "words": text.words,
            "bytes": text.bytes,
            "line_words": _LINE_WORDS,
        },
        **found,
    }
    title = _title(options, text)
    return Report(title, record, pipeline_report.text(found), pipeline_report.panels(found))


def _settings(options: PipelineOptions) -> dict[str, Any]:
    """What was measured, and not where it was or where the results went."""
    settings = dataclasses.asdict(options)
    return {name: settings[name] for name in settings if name not in ("json", "plot", "corpus")}


def _train_flags(options: PipelineOptions) -> list[str]:
    """More flags of the trainer; those that the benchmark sets are refused."""
    value = options.train_flags
    try:
        flags = shlex.split(value)
    except ValueError as error:
        raise UsageError(f"--train_flags={value}: {error}; mend the quotes") from None
    for flag in flags:
        name = flag.lstrip("-").partition("=")[0]
        if flag.startswith("-") and name in {*_shared(options, 0), "workdir", "plan_only"}:
            raise UsageError(
                f"--train_flags={value}: --{name} is for the benchmark to set; leave it out here"
            )
    return flags


def _shared(options: PipelineOptions, repeat: int) -> dict[str, Any]:
    names = ("corpus", "tokenizer", "min_count", "epochs")
    shared = {name: getattr(options, name) for name in names}
    # Whatever the configuration says: the vocabulary is that of the text, which is read each time.
    return shared | {"vocab": "", "cache": "none", "task": "words", "seed": repeat + 1}


def _text(sources: Sequence[str], options: PipelineOptions, folder: Path) -> Text:
    """The first words of the corpus, as plain lines."""
    file = folder / "corpus.txt"
    if not lines.write(sources, file, _LINE_WORDS):
        raise UsageError(f"--corpus={options.corpus}: no word in it; name files that hold text")
    words = _cut(file, options.words)
    return Text(file, words, file.stat().st_size, folder / "vocab.tsv")


def _cut(file: Path, words: int) -> int:
    """Cuts a file of lines after the one with so many words reached; how many it has then."""
    kept = 0
    with open(file, "r+b") as text:
        while kept < words and (line := text.readline()):
            kept += len(line.split(b" "))
        text.truncate(text.tell())
    return kept


def _measured(module: str, job: dict[str, Any], folder: Path) -> dict[str, Any]:
    result = folder / "result.json"
    arguments = ["-m", module, json.dumps(job | {"result": str(result)})]
    child_processes.run(f"pipeline, {job['side']}", arguments, folder / "log")
    return json.loads(result.read_text(encoding="utf-8"))


def _trained(
    options: PipelineOptions, train_flags: list[str], repeat: int, text: Text, folder: Path
) -> dict[str, Any]:
    """Trains word vectors on the corpus, and leaves the vocabulary for the ways from text."""
    with tempfile.TemporaryDirectory(prefix="lexrow-run-") as workdir:
        train = [
            "-m",
            f"{PACKAGE}.train",
            "--flagfile=configs/words.cfg",
            f"--log_seconds={_LOG_SECONDS}",
        ]
        train += [*train_flags, f"--workdir={workdir}"]
        train += [f"--{name}={value}" for name, value in _shared(options, repeat).items()]
        child_processes.run(f"{PACKAGE}.train", train, folder / "log")
        metrics = (Path(workdir) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        text.vocabulary.write_bytes((Path(workdir) / "vocab.tsv").read_bytes())
    return steady([json.loads(row) for row in metrics])


def steady(metrics: Sequence[dict[str, float]]) -> dict[str, float | None]:
    """Words/s and the share of waiting, from the rows of metrics.jsonl without the first interval.

    A row's `input_wait` is a share of the time since the row before. None where a run is so short
    that it has one interval only.
    """
    times = [row["train_seconds"] for row in metrics]
    seconds = [end - start for start, end in zip(times, times[1:], strict=False)]
    if not seconds:
        return {"words_per_second": None, "waiting": None}
    waited = sum(row["input_wait"] * took for row, took in zip(metrics[1:], seconds, strict=True))
    words = metrics[-1]["words"] - metrics[0]["words"]
    return {"words_per_second": words / sum(seconds), "waiting": waited / sum(seconds)}


def _check(runs: dict[str, list[dict[str, Any]]], sides: Sequence[str]) -> None:
    """RunError when one way from text to ids gives other tokens, for then no speed compares."""
    known = {side: run["known"] for side in sides for run in runs[side]}
    if len(set(known.values())) > 1:
        counts = ", ".join(f"{side} {count:,}" for side, count in known.items())
        raise RunError(f"the ways from text to ids differ in how many they give: {counts}")


def _title(options: PipelineOptions, text: Text) -> str:
    runs = f"medians of {options.repeats} runs" if options.repeats > 1 else "one run"
    return (
        f"Input pipelines: {options.examples:,} examples, {text.words:,} words of text "
        f"({options.tokenizer}); {runs} a side"
    )
