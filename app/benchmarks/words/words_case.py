"""Word vectors: `app.train` beside gensim on the same text, with the same settings and scorer.

Every run is a process of its own, one at a time, started by the same Python. The text is first
written as plain lines of at most 1,000 words, which both sides read; this is not timed. Of each
side is measured:

- raw words/s: words of the text x epochs / seconds of the training loop (`train_seconds` of
  metrics.jsonl, in which TensorFlow's compilation counts; gensim's `Word2Vec.train`). Both loops
  read and tokenise the text: gensim at every epoch, ours too unless --cache keeps the token ids of
  the first, as configs/words.cfg asks;
- seconds to the vocabulary: from the start of the process, imports included, until words are
  counted and rows made;
- seconds end to end: from the start of the process to its end, with the vectors saved as a
  word2vec binary file. Ours are two processes, app.train and app.export, which import twice, and
  app.train also writes a checkpoint and scores the vectors; gensim does neither;
- peak memory: the most that a process had resident, and that less the peak of a process that only
  imports the side's library.

Scores are taken last, in this process, from the saved files: the whole vocabulary, case folded.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ... import __name__ as PACKAGE
from ...config import CorpusConfig
from ...errors import RunError, UsageError
from ...evaluation import score_report as scoring
from ...exporting import word2vec_reader
from ...text import corpus
from ..harness import child_processes, lines, machine, trainer, trials
from ..harness.options import WordsOptions
from ..harness.report import Measure, Report, panels, results, table
from ..harness.trainer import OURS, Peer

MEASURES = (
    Measure("words_per_second", "raw words/s of training", ",.0f", better="higher"),
    Measure("train_seconds", "training, s", ",.1f", better="lower"),
    Measure("vocabulary_seconds", "start to vocabulary, s", ",.1f", better="lower"),
    Measure("total_seconds", "end to end, s", ",.1f", better="lower"),
    Measure("peak_bytes", "peak memory, MB", ",.0f", per=1e6, better="lower"),
    Measure("peak_bytes_above_import", "  above the import alone, MB", ",.0f", 1e6, "lower"),
    Measure("input_wait", "waiting for input", ".1%", better="lower"),
    *(
        Measure(name, name, ".3f", better="higher", by_difference=True)
        for name in scoring.benchmarks
    ),
)
_DRAWN = ("words_per_second", "total_seconds", "peak_bytes", *scoring.benchmarks)

# What the papers and both programs take by default: Mikolov et al. 2013, arXiv 1310.4546, sections
# 2.2 and 2.3, and word2vec.c.
_NEGATIVES = 5
_SUBSAMPLE = 1e-3
# What gensim does, by the names of our flags.
_LIKE_GENSIM = {
    "task": "words",
    "tokenizer": "whitespace",
    "documents": "line",
    "vocab": "",
    "max_vocab_size": 0,
    "plan_only": False,
}
# A side that counts fewer words than this share has not trained on the text; a batch at the end of
# a short one is no matter. More are possible: a worker of gensim ends with a whole batch of 10,000
# words, some of which the next worker reads too.
_ENOUGH_WORDS = 0.9


class Job(NamedTuple):
    """One run of one side. settings: what both sides share, by the names of our flags."""

    text: Path
    folder: Path
    settings: dict[str, Any]
    train_flags: list[str]

    @property
    def vectors(self) -> Path:
        """Where the run leaves its vectors, a word2vec binary file."""
        return self.folder / "vectors.bin"


def run(options: WordsOptions) -> Report:
    """Runs both sides `options.repeats` times and reports.

    UsageError for a peer, a corpus or a flag that cannot be; RunError when a side fails.
    """
    sides = [OURS, *trainer.peers(options.peers, _PEERS, "words")]
    fixed = {*_shared(WordsOptions(), 0), *_LIKE_GENSIM, "corpus", "workdir"}
    train_flags = trainer.flags(options.train_flags, fixed)
    sources = corpus.resolve(CorpusConfig(corpus=options.corpus))
    described = machine.describe(["tensorflow", "numpy", *sides[1:]])
    with tempfile.TemporaryDirectory(prefix="lexrow-bench-") as scratch:
        text = Path(scratch) / "corpus.txt"
        words = lines.write(sources, text)
        if not words:
            raise UsageError(f"--corpus={options.corpus}: no word in it; name files that hold text")
        size = text.stat().st_size
        bare = {side: child_processes.importing(_LIBRARIES[side]) for side in sides}

        def job(side: str, repeat: int) -> Job:
            folder = Path(options.keep or scratch) / f"{side}-{repeat + 1}"
            folder.mkdir(exist_ok=True)
            return Job(text, folder, _shared(options, repeat), train_flags)

        def run_one(side: str, repeat: int) -> dict[str, Any]:
            return _measured(side, job(side, repeat), words, bare[side])

        runs = trials.alternate(sides, options.repeats, run_one)
        for side, own in runs.items():
            for repeat, values in enumerate(own):
                values |= _scores(job(side, repeat).vectors)
    found = results(runs, MEASURES)
    names = [Path(source).name for source in sources]
    record = {
        "case": "words",
        "machine": described,
        "settings": _shared(options, 0) | {"train_flags": train_flags},
        "corpus": {"files": names, "words": words, "bytes": size, "line_words": lines.LINE_WORDS},
        "imports": {side: usage._asdict() for side, usage in bare.items()},
        **found,
    }
    drawn = [measure for measure in MEASURES if measure.key in _DRAWN]
    return Report(_title(options, words), record, table(found, MEASURES), panels(found, drawn))


def _shared(options: WordsOptions, repeat: int) -> dict[str, Any]:
    names = ("model", "loss", "dim", "window", "epochs", "min_count")
    shared = {name: getattr(options, name) for name in names}
    return shared | {"negatives": _NEGATIVES, "subsample": _SUBSAMPLE, "seed": repeat + 1}


def _lexrow(job: Job) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="lexrow-run-") as workdir:
        return _trained(job, Path(workdir))


def _trained(job: Job, workdir: Path) -> dict[str, Any]:
    settings = job.settings | _LIKE_GENSIM | {"corpus": job.text, "workdir": workdir}
    trained, metrics = trainer.train("words", job.train_flags, settings, job.folder / "train.log")
    export = ["-m", f"{PACKAGE}.export", f"--workdir={workdir}", f"--output={job.vectors}"]
    export.append("--format=word2vec_binary")
    exported = child_processes.run(f"{PACKAGE}.export", export, job.folder / "export.log")
    vocabulary_time = (workdir / "vocab.tsv").stat().st_mtime
    return {
        "words": metrics[-1]["words"],
        "train_seconds": metrics[-1]["train_seconds"],
        "vocabulary_seconds": vocabulary_time - trained.started,
        "total_seconds": trained.seconds + exported.seconds,
        "export_seconds": exported.seconds,
        "peak_bytes": max(trained.peak_bytes, exported.peak_bytes),
        "input_wait": input_wait(metrics),
    }


def input_wait(metrics: Sequence[dict[str, float]]) -> float:
    """Share of the whole training spent waiting, from the rows of metrics.jsonl.

    A row's `input_wait` is a share of the time since the row before.
    """
    waited = previous = 0.0
    for row in metrics:
        waited += row["input_wait"] * (row["train_seconds"] - previous)
        previous = row["train_seconds"]
    return waited / previous


def _gensim(job: Job) -> dict[str, Any]:
    result = job.folder / "result.json"
    files = {"text": str(job.text), "vectors": str(job.vectors), "result": str(result)}
    spec = json.dumps(job.settings | files | {"workers": machine.cores()})
    arguments = ["-m", f"{PACKAGE}.benchmarks.words.gensim_words", spec]
    usage = child_processes.run("gensim", arguments, job.folder / "train.log")
    values = json.loads(result.read_text(encoding="utf-8"))
    return {
        "words": values["words"],
        "train_seconds": values["train_seconds"],
        "vocabulary_seconds": values["vocabulary_time"] - usage.started,
        "total_seconds": usage.seconds,
        "peak_bytes": usage.peak_bytes,
    }


SIDES = {OURS: _lexrow, "gensim": _gensim}
_PEERS = {"gensim": Peer("gensim", "gensim")}
_LIBRARIES = {OURS: "tensorflow"} | {name: peer.module for name, peer in _PEERS.items()}


def _measured(side: str, job: Job, words: int, bare: child_processes.Usage) -> dict[str, Any]:
    values = SIDES[side](job)
    wanted = words * job.settings["epochs"]
    if values["words"] < _ENOUGH_WORDS * wanted:
        raise RunError(
            f"{side} trained on {values['words']:,} words, not on the {wanted:,} of the text and "
            "its epochs, so its speed means nothing; --keep=DIR keeps its log"
        )
    values["words_per_second"] = wanted / values["train_seconds"]
    values["peak_bytes_above_import"] = values["peak_bytes"] - bare.peak_bytes
    return values


def _scores(vectors: Path) -> dict[str, Any]:
    """The value of every benchmark by its name, and under `scores` all there is to say of it."""
    scores = scoring.run(word2vec_reader.read(vectors))
    values = {score.name: score.value for score in scores}
    return values | {"scores": scoring.summary(scores)}


def _title(options: WordsOptions, words: int) -> str:
    runs = f"medians of {options.repeats} runs" if options.repeats > 1 else "one run"
    return (
        f"{words:,} words, {options.model}, {options.loss}, epochs {options.epochs}, dim "
        f"{options.dim}, window {options.window}, min_count {options.min_count}; {runs} a side"
    )
