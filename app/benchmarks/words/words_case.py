"""Compare lexrow.train --task=words with gensim, with the same text, settings and scores.

Every run is a process of its own, one at a time. The text is first written as plain lines of at
most 1,000 words, which both sides read; this is not timed. The figures of a side:

- raw words/s: words of the text x epochs / seconds of the training loop (`train_seconds` of
  metrics.jsonl, with TensorFlow's compilation; `Word2Vec.train` of gensim). Both loops read and
  tokenize the text: gensim in every epoch, Lexrow in the first, after which --cache keeps the token
  ids in memory (in every epoch if they take more than 1 GiB);
- seconds to the vocabulary: from the start of the process, with imports, until words are counted
  and rows made;
- seconds end to end: from the start of the process to its end, with the vectors saved as a word2vec
  binary file. Lexrow has two processes, lexrow.train and lexrow.export. lexrow.train also writes a
  checkpoint and scores the vectors, which gensim does not;
- peak memory: the most resident memory of a process, and the same without the peak of a process
  that only imports the library.

Scores are computed in this process from the saved files: with the whole vocabulary, case folded.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from ... import __name__ as PACKAGE
from ...config import CorpusConfig
from ...evaluation import score_report
from ...system import processes
from ...text import corpus, word2vec_reader
from ..harness import corpus_lines, machine, programs, report, trainer, trials
from ..harness.options import WordsOptions
from ..harness.report import Measure, Result
from ..harness.trainer import OURS, Peer, mean_between

MEASURES = (
    Measure("words_per_second", "raw words/s of training", ",.0f", better="higher", drawn=True),
    Measure("train_seconds", "training, s", ",.1f", better="lower"),
    Measure("vocabulary_seconds", "start to vocabulary, s", ",.1f", better="lower"),
    Measure("total_seconds", "end to end, s", ",.1f", better="lower", drawn=True),
    Measure("peak_bytes", "peak memory, MB", ",.0f", per=1e6, better="lower", drawn=True),
    Measure("peak_bytes_above_import", "  above the import alone, MB", ",.0f", 1e6, "lower"),
    Measure("input_wait", "waiting for input", ".1%", better="lower"),
    *(report.score_measure(name, drawn=True) for name in score_report.benchmarks),
)

# The defaults of both sides, from Mikolov et al. 2013, arXiv 1310.4546, sections 2.2 and 2.3, and
# word2vec.c.
_NEGATIVES = 5
_SUBSAMPLE = 1e-3
# What gensim does, by flags of lexrow.train.
_LIKE_GENSIM = {
    "task": "words",
    "tokenizer": "whitespace",
    "documents": "line",
    "vocab": "",
    "max_vocab_size": 0,
    "plan_only": False,
}


class Job(NamedTuple):
    """One run of one side.

    Attributes:
        text: The text.
        folder: The folder for the files of the run.
        settings: The settings of both sides, by flags of lexrow.train.
        train_flags: Further flags of lexrow.train.
    """

    text: Path
    folder: Path
    settings: dict[str, Any]
    train_flags: list[str]

    @property
    def vectors(self) -> Path:
        """The file for the vectors, word2vec binary."""
        return self.folder / "vectors.bin"


def run(options: WordsOptions) -> Result:
    """Run both sides `options.repeats` times.

    The vectors and logs are kept only in `options.keep`.

    Args:
        options: The settings of the case.

    Raises:
        UsageError: A peer, the corpus or a flag is not possible.
        RunError: A side failed, or trained on too few words.
    """
    sides = trainer.sides(options.peers, _PEERS, "words")
    fixed = {*_shared(WordsOptions(), 0), *_LIKE_GENSIM, "corpus", "workdir"}
    train_flags = trainer.flags(options.train_flags, fixed)
    sources = corpus.resolve(CorpusConfig(corpus=options.corpus))
    with tempfile.TemporaryDirectory(prefix="lexrow-bench-") as scratch:
        text = Path(scratch) / "corpus.txt"
        words = corpus_lines.write(sources, text)
        sizes = corpus_lines.record(sources, text, words)
        described, bare = trainer.measure_imports(sides, _PEERS)

        def run_one(side: str, repeat: int) -> dict[str, Any]:
            """Run a side in a folder of its own; return its figures, with those of `_scores`."""
            folder = Path(options.keep or scratch) / f"{side}-{repeat + 1}"
            folder.mkdir(exist_ok=True)
            job = Job(text, folder, _shared(options, repeat), train_flags)
            return _measure(side, job, words, bare[side]) | _scores(job.vectors)

        runs = trials.alternate(sides, options.repeats, run_one)
    table = report.make_table(runs, MEASURES)
    figures = {
        "corpus": sizes,
        "imports": {side: usage._asdict() for side, usage in bare.items()},
        **report.sides_record(table),
    }
    settings = _shared(options, 0) | {"train_flags": train_flags}
    title = (
        f"{words:,} words, {options.model}, {options.loss}, epochs {options.epochs}, dim "
        f"{options.dim}, window {options.window}, min_count {options.min_count}; "
        f"{options.count_runs()} a side"
    )
    panels = report.make_panels(table)
    return Result("words", title, described, settings, [table], figures, panels)


def _shared(options: WordsOptions, repeat: int) -> dict[str, Any]:
    """Return the settings of both sides by flag of lexrow.train; the seed is `repeat + 1`."""
    names = ("model", "loss", "dim", "window", "epochs", "min_count")
    shared = {name: getattr(options, name) for name in names}
    return shared | {"negatives": _NEGATIVES, "subsample": _SUBSAMPLE, "seed": repeat + 1}


def _lexrow(job: Job) -> dict[str, Any]:
    """Train, and export to `job.vectors`; return the figures of both."""
    with tempfile.TemporaryDirectory(prefix="lexrow-run-") as workdir:
        settings = job.settings | _LIKE_GENSIM | {"corpus": job.text, "workdir": workdir}
        log = job.folder / "train.log"
        trained, metrics = trainer.train("words", job.train_flags, settings, log)
        export = {"workdir": workdir, "output": job.vectors, "format": "word2vec_binary"}
        exported = trainer.run([f"{PACKAGE}.export"], export, job.folder / "export.log")
        vocabulary_time = (Path(workdir) / "vocab.tsv").stat().st_mtime
    return {
        "words": metrics[-1]["words"],
        "train_seconds": metrics[-1]["train_seconds"],
        "vocabulary_seconds": vocabulary_time - trained.started,
        "total_seconds": trained.seconds + exported.seconds,
        "export_seconds": exported.seconds,
        "peak_bytes": max(trained.peak_bytes, exported.peak_bytes),
        "input_wait": mean_between(metrics, "input_wait", "train_seconds"),
    }


def _gensim(job: Job) -> dict[str, Any]:
    """Train by gensim on all cores in its own process, which writes `job.vectors`."""
    files = {"text": str(job.text), "vectors": str(job.vectors)}
    spec = job.settings | files | {"workers": machine.cores()}
    values, usage = programs.run("gensim", "words.gensim_words", spec, job.folder / "train.log")
    vocabulary_seconds = values.pop("vocabulary_time") - usage.started
    times = {"vocabulary_seconds": vocabulary_seconds, "total_seconds": usage.seconds}
    return values | times | {"peak_bytes": usage.peak_bytes}


SIDES = {OURS: _lexrow, "gensim": _gensim}
_PEERS = {"gensim": Peer("gensim", "gensim")}


def _measure(side: str, job: Job, words: int, bare: processes.Usage) -> dict[str, Any]:
    """Run a side, and return its figures without scores.

    `words` are those of the text, `bare` is of a process that only imports the library. Raises
    RunError if fewer than 90 % of the words of all epochs were trained on.
    """
    values = SIDES[side](job)
    wanted = words * job.settings["epochs"]
    trainer.check_count(side, values["words"], wanted, "words")
    values["words_per_second"] = wanted / values["train_seconds"]
    values["peak_bytes_above_import"] = values["peak_bytes"] - bare.peak_bytes
    return values


def _scores(vectors: Path) -> dict[str, Any]:
    """Return the value of every score of a word2vec file by name, None if it is undefined.

    The details (`score_report.summary`) are under `scores`. Without gensim there are no scores.
    """
    scores = score_report.run(word2vec_reader.read(vectors))
    values = {score.name: score.value for score in scores}
    return values | {"scores": score_report.summary(scores)}
