"""Compare Lexrow's input pipelines with usual ones, and measure how long training waits for them.

There are three parts. Each side is a process of its own, one at a time.

classifier: a case from many public questions: 10,000 examples of 20 words, an embedding of
1,000 x 100, their mean, a sigmoid, Adam at 0.001 (see `pipeline_examples`, `pipeline_classifier`).

- naive: split and look up an example at a time, batches of 32, no prefetch; keras.fit;
- prefetch: the same with batches of 128 and a prefetch;
- parallel: the same with a parallel map of a preprocessing that needs much processor time (Unicode
  normalization, case folding, regular expressions of classes of Unicode characters);
- ours: the same preprocessing for 1,024 examples at a time; ids are cached in the first epoch;
  batches of 128; the trainer's steps on a table, 16 in a call.

Examples/s are the median over epochs without the first. Accuracy is that of the final classifier on
the examples that it was trained on: a batch of 32 makes four times the steps of an epoch. With
batches of 32 and 64 steps in a call, ours made 101,000 to 189,000 examples/s and naive 10,000 to
17,000, run alternately; accuracy was 0.988 and 0.991 (three runs, two cores with other work).

text: from text to ids, without unknown words: by a Python generator and by a map, a line at a time;
vectorised, by blocks of text in a parallel map, as in the trainer; from cached ids. All read the
same plain file. Words/s are of passes that take seconds together, after a first one. Lines are
those of the corpus, cut after 20 words, and a generator or a map costs a fixed time for each line:
with lines of 1,000 words, vectorised is only about four times as fast as a generator.

trainer: lexrow.train on the corpus, which is read and tokenized in every epoch.

Waiting is the share of the time in which a loop waits for the next batch, without the first epoch
or, for the trainer, without the first interval of metrics.jsonl, in which it traces.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...config import CorpusConfig
from ...errors import RunError
from ...text import corpus
from ..harness import corpus_lines, machine, programs, report, trainer, trials
from ..harness.option_values import chosen
from ..harness.options import PipelineOptions
from ..harness.report import Measure, Panel, Result, Table

SPEED = Measure("examples_per_second", "examples/s", ",.0f", better="higher", drawn=True)
WORDS = Measure("words_per_second", "words/s", ",.0f", better="higher", drawn=True)
WAITING = Measure("waiting", "waiting for input", ".1%", better="lower")
FIRST = Measure("first_seconds", "first, with tracing, s", ",.2f", better="lower")
# Part -> the measures of its sides.
MEASURES = {
    "classifier": (
        SPEED,
        WAITING,
        Measure("accuracy", "accuracy in training", ".3f", better="higher", by_difference=True),
        FIRST,
    ),
    "text": (WORDS, Measure("known", "tokens with an id", ",.0f"), FIRST),
    "trainer": (WORDS, WAITING),
}
_TITLES = {
    "classifier": "classifier: embedding 1,000 x 100, mean over 20 tokens, sigmoid, Adam",
    "text": "text to ids",
    "trainer": "word trainer",
}

# Part -> its sides, those of Lexrow first.
SIDES = {
    "trainer": ("trainer",),
    "classifier": ("ours", "naive", "prefetch", "parallel"),
    "text": ("vectorised", "cached", "map", "generator"),
}
PEERS = ("naive", "prefetch", "parallel", "generator", "map")

# Words of a line: as many as the examples of the classifier have, and about as many as the lines of
# the docstrings have on average (21).
_LINE_WORDS = 20
# A short interval, as the first one does not count.
_LOG_SECONDS = 1


def run(options: PipelineOptions) -> Result:
    """Run every side `options.repeats` times.

    Args:
        options: The settings of the case.

    Raises:
        UsageError: A peer, the corpus or a flag is not possible.
        RunError: A side failed, or two sides return different numbers of tokens.
    """
    peers = chosen("peers", options.peers, PEERS, "peer of pipeline")
    fixed = {*_shared(options, 0), "workdir", "plan_only"}
    train_flags = trainer.flags(options.train_flags, fixed)
    sources = corpus.resolve(CorpusConfig(corpus=options.corpus))
    parts = {
        part: [side for side in sides if side not in PEERS or side in peers]
        for part, sides in SIDES.items()
    }
    part_of = {side: part for part, sides in parts.items() for side in sides}
    described = machine.describe(["tensorflow", "keras", "tensorflow-text", "numpy"])
    with tempfile.TemporaryDirectory(prefix="lexrow-bench-") as scratch:
        folder = Path(scratch)
        file, vocabulary = folder / "corpus.txt", folder / "vocab.tsv"
        words = corpus_lines.write(sources, file, _LINE_WORDS, options.words)
        sizes = corpus_lines.record(sources, file, words, _LINE_WORDS)

        def run_one(side: str, repeat: int) -> dict[str, Any]:
            """Run a side in its own process, with seed `repeat + 1` where it has one."""
            if side == "trainer":
                return _train(options, train_flags, repeat, vocabulary)
            job: dict[str, Any] = {"side": side}
            if part_of[side] == "classifier":
                job |= {"examples": options.examples, "epochs": options.example_epochs}
                job |= {"seed": repeat + 1}
            else:
                job |= {"text": str(file), "words": words}
                job |= {"tokenizer": options.tokenizer, "vocabulary": str(vocabulary)}
            return programs.run(f"pipeline, {side}", f"pipeline.pipeline_{part_of[side]}", job)[0]

        runs = trials.alternate(list(part_of), options.repeats, run_one)
    _check(runs, parts["text"])
    tables = {
        part: report.make_table({side: runs[side] for side in sides}, MEASURES[part], _TITLES[part])
        for part, sides in parts.items()
    }
    figures = {
        "corpus": sizes,
        **{part: report.sides_record(table) for part, table in tables.items()},
    }
    settings = options.measured() | {"train_flags": train_flags}
    del settings["corpus"]
    title = (
        f"Input pipelines: {options.examples:,} examples, {words:,} words of text "
        f"({options.tokenizer}); {options.count_runs()} a side"
    )
    panels = _make_panels(tables)
    return Result("pipeline", title, described, settings, list(tables.values()), figures, panels)


def _make_panels(tables: dict[str, Table]) -> list[Panel]:
    """Return the panels of the speeds of `classifier` and `text`, then one of waiting.

    The last has the sides of `trainer` and `classifier`.
    """
    rows = [*tables["trainer"].rows, *tables["classifier"].rows]
    waiting = Table("", [WAITING._replace(drawn=True)], rows)
    return [
        *report.make_panels(tables["classifier"], "classifier: {}", log=True),
        *report.make_panels(tables["text"], "text to ids: {}", ours=2, log=True),
        *report.make_panels(waiting, ours=2),
    ]


def _shared(options: PipelineOptions, repeat: int) -> dict[str, Any]:
    """Return the flags of lexrow.train that the benchmark sets; the seed is `repeat + 1`.

    The workdir is not among them.
    """
    names = ("corpus", "tokenizer", "min_count", "epochs")
    shared = {name: getattr(options, name) for name in names}
    # The vocabulary is that of the text, and the text is read each time.
    return shared | {"vocab": "", "cache": "none", "task": "words", "seed": repeat + 1}


def _train(
    options: PipelineOptions, train_flags: list[str], repeat: int, vocabulary: Path
) -> dict[str, Any]:
    """Run lexrow.train on the whole corpus, write its vocabulary, and return figures of `steady`.

    The log is a file beside the vocabulary.
    """
    with tempfile.TemporaryDirectory(prefix="lexrow-run-") as workdir:
        flags = [f"--log_seconds={_LOG_SECONDS}", *train_flags]
        settings = {"workdir": workdir, **_shared(options, repeat)}
        _, metrics = trainer.train("words", flags, settings, vocabulary.with_name("log"))
        vocabulary.write_bytes((Path(workdir) / "vocab.tsv").read_bytes())
    return steady(metrics)


def steady(metrics: Sequence[dict[str, float]]) -> dict[str, float | None]:
    """Return words/s and the share of waiting, without the first interval.

    Args:
        metrics: The rows of metrics.jsonl.

    Returns:
        `words_per_second` and `waiting` (a share), both None if there is one row only.
    """
    speed, start = trainer.later_speed(metrics, "words"), metrics[0]["train_seconds"]
    waiting = speed and trainer.mean_between(metrics[1:], "input_wait", "train_seconds", start)
    return {"words_per_second": speed, "waiting": waiting}


def _check(runs: dict[str, list[dict[str, Any]]], sides: Sequence[str]) -> None:
    """Raise RunError if the sides of `text` return different numbers of ids."""
    # Their speeds could not be compared.
    known = {side: run["known"] for side in sides for run in runs[side]}
    if len(set(known.values())) > 1:
        counts = ", ".join(f"{side} {count:,}" for side, count in known.items())
        raise RunError(f"the sides of text return different numbers of ids: {counts}")
