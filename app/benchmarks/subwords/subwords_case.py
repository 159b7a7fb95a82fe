"""Compare lexrow.train --task=words with subwords to fastText, and to the same without subwords.

Every run is a process of its own, one at a time. The text is first written as plain lines of at
most 1,000 words, without the words of `rare_words`, which all sides read; this is not timed. The
figures of a side:

- raw words/s: words of the text x epochs / seconds of the training loop. Lexrow's is
  `train_seconds` of metrics.jsonl, with TensorFlow's compilation; fastText's is from its own
  progress line, without reading the dictionary and making the table;
- seconds end to end: of the process that trains, with imports. lexrow.train also writes a
  checkpoint and scores the vectors; fastText saves its model;
- peak memory: the most resident memory of that process, and the same without the import;
- scores, computed in this process: of the benchmarks, and `rare`, Spearman's rho for the pairs of
  `rare_words`. Words without a row have vectors by their n-grams, so that all pairs are used;
  without subwords `rare` has no pair. Questions with such words are skipped, as the answer is
  searched in the vocabulary.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...config import CorpusConfig
from ...evaluation import score_report
from ...system import processes
from ...tasks import trained_vectors
from ...tasks.words import subword_vectors
from ...text import corpus
from ...text.vocabulary import Vocabulary
from ...types import NgramRule, WordVectors
from ..harness import corpus_lines, machine, programs, report, trainer, trials
from ..harness.fasttext_log import train_seconds
from ..harness.report import Measure, Result
from ..harness.subwords_options import SubwordsOptions
from ..harness.trainer import OURS, Peer
from . import rare_words

WITHOUT = "lexrow without subwords"
MEASURES = (
    Measure("words_per_second", "raw words/s of training", ",.0f", better="higher", drawn=True),
    Measure("train_seconds", "training loop, s", ",.1f", better="lower"),
    Measure("total_seconds", "end to end, s", ",.1f", better="lower", drawn=True),
    Measure("peak_bytes", "peak memory, MB", ",.0f", per=1e6, better="lower", drawn=True),
    trainer.ABOVE_IMPORT,
    *(report.score_measure(name, drawn=True) for name in (*score_report.benchmarks, "rare")),
)
# The settings that fastText has no flag for, or by other names.
_LIKE_FASTTEXT = {
    "task": "words",
    "tokenizer": "whitespace",
    "documents": "line",
    "vocab": "",
    "max_vocab_size": 0,
    "plan_only": False,
}
_SUBWORDS = ("min_ngram", "max_ngram", "ngram_buckets")
_LOSSES = {"negative_sampling": "ns", "hierarchical_softmax": "hs"}
# As word2vec.c: fastText's own default of 1e-4 keeps a third of the words.
_NEGATIVES, _SUBSAMPLE = 5, 1e-3


class Job(NamedTuple):
    """One run of one side.

    Attributes:
        text: The text.
        words: The number of its words.
        folder: The folder for the files of the run.
        settings: The settings of all sides, by flags of lexrow.train.
        train_flags: Further flags of lexrow.train.
    """

    text: Path
    words: int
    folder: Path
    settings: dict[str, Any]
    train_flags: list[str]


class Trained(NamedTuple):
    """The result of a run.

    Attributes:
        train_seconds: The seconds of the training loop.
        usage: The time and memory of the process that trains.
        vectors: The vectors of all words.
    """

    train_seconds: float
    usage: processes.Usage
    vectors: WordVectors


def run(options: SubwordsOptions) -> Result:
    """Run all sides `options.repeats` times.

    The logs are kept only in `options.keep`.

    Args:
        options: The settings of the case.

    Raises:
        UsageError: A peer, the corpus or a flag is not possible.
        RunError: A side failed, or trained on too few words.
    """
    sides = trainer.sides(options.peers, _PEERS, "subwords")
    fixed = {*_shared(options, 0), *_LIKE_FASTTEXT, "corpus", "workdir"}
    train_flags = trainer.flags(options.train_flags, fixed)
    sources = corpus.resolve(CorpusConfig(corpus=options.corpus))
    with tempfile.TemporaryDirectory(prefix="lexrow-bench-") as scratch:
        whole, text, pairs = (Path(scratch) / name for name in ("whole.txt", "text.txt", "pairs"))
        words = corpus_lines.write(sources, whole)
        held_out = rare_words.hold_out(whole, text, pairs)
        sizes = corpus_lines.record(sources, whole, words) | {"held_out": held_out}
        words = sum(map(len, corpus_lines.read([str(text)], corpus_lines.LINE_WORDS)))
        described, bare = trainer.measure_imports(sides, _PEERS)
        bare[WITHOUT] = bare[OURS]

        def run_one(side: str, repeat: int) -> dict[str, Any]:
            """Run a side in a folder of its own; return its figures."""
            folder = Path(options.keep or scratch) / f"{side}-{repeat + 1}"
            folder.mkdir(exist_ok=True)
            job = Job(text, words, folder, _shared(options, repeat), train_flags)
            return _measure(side, job, bare[side], [str(pairs)] if held_out else [])

        runs = trials.alternate([OURS, WITHOUT, *sides[1:]], options.repeats, run_one)
    table = report.make_table(runs, MEASURES)
    imports = {side: usage._asdict() for side, usage in bare.items()}
    figures = {"corpus": sizes, "imports": imports, **report.sides_record(table)}
    settings = _shared(options, 0) | {"train_flags": train_flags}
    title = (
        f"{words:,} words, {options.model}, n-grams of {options.min_ngram} to {options.max_ngram} "
        f"characters, epochs {options.epochs}, dim {options.dim}; {options.count_runs()} a side"
    )
    panels = report.make_panels(table)
    return Result("subwords", title, described, settings, [table], figures, panels)


def _shared(options: SubwordsOptions, repeat: int) -> dict[str, Any]:
    """Return the settings of all sides by flag of lexrow.train; the seed is `repeat + 1`."""
    names = ("model", "loss", "dim", "window", "epochs", "min_count", *_SUBWORDS)
    shared = {name: getattr(options, name) for name in names}
    return shared | {"negatives": _NEGATIVES, "subsample": _SUBSAMPLE, "seed": repeat + 1}


def _train(job: Job, config: str, settings: dict[str, Any]) -> Trained:
    """Run lexrow.train with a configuration; raise RunError if it trained on too few words."""
    with tempfile.TemporaryDirectory(prefix="lexrow-run-") as workdir:
        settings = settings | _LIKE_FASTTEXT | {"corpus": job.text, "workdir": workdir}
        log = job.folder / "train.log"
        usage, metrics = trainer.train(config, job.train_flags, settings, log)
        wanted = job.words * job.settings["epochs"]
        trainer.check_count(OURS, metrics[-1]["words"], wanted, "words")
        return Trained(metrics[-1]["train_seconds"], usage, trained_vectors.load(workdir))


def _lexrow(job: Job) -> Trained:
    """Run lexrow.train with subwords."""
    return _train(job, "subwords", job.settings)


def _without(job: Job) -> Trained:
    """Run lexrow.train without subwords."""
    settings = {name: value for name, value in job.settings.items() if name not in _SUBWORDS}
    return _train(job, "words", settings)


def _fasttext(job: Job) -> Trained:
    """Train by fastText on all cores in one process; another one writes its rows to files.

    The seed is always its own: train_unsupervised of the wheel 0.9.2 takes none.
    """
    given = job.settings
    settings = {
        "model": given["model"],
        "loss": _LOSSES[given["loss"]],
        "dim": given["dim"],
        "ws": given["window"],
        "epoch": given["epochs"],
        "minCount": given["min_count"],
        "minn": given["min_ngram"],
        "maxn": given["max_ngram"],
        "bucket": given["ngram_buckets"],
        "neg": given["negatives"],
        "t": given["subsample"],
        "thread": machine.cores(),
    }
    program, log = "subwords.fasttext_words", job.folder / "train.log"
    with tempfile.TemporaryDirectory(prefix="lexrow-run-") as folder:
        spec = {"model": f"{folder}/model.bin", "text": str(job.text), "settings": settings}
        _, usage = programs.run("fasttext", program, spec, log)
        files = {"words": f"{folder}/words.txt", "rows": f"{folder}/rows.npy"}
        programs.run("fasttext", program, {"model": spec["model"], **files})
        tokens = Path(files["words"]).read_text(encoding="utf-8").split("\n")[:-1]
        rule = NgramRule(*(given[name] for name in _SUBWORDS))
        words = Vocabulary(tokens, np.ones(len(tokens), np.int64), len(tokens))
        vectors = subword_vectors.compose(words, np.load(files["rows"]), rule)
    with open(job.text, "rb") as file:
        ends = sum(1 for _ in file)  # fastText counts the end of a line as a word
    seconds = train_seconds(log, (job.words + ends) * given["epochs"], settings["thread"])
    return Trained(seconds, usage, vectors)


SIDES = {OURS: _lexrow, WITHOUT: _without, "fasttext": _fasttext}
_PEERS = {"fasttext": Peer("fasttext", "fasttext-wheel")}


def _measure(side: str, job: Job, bare: processes.Usage, pairs: list[str]) -> dict[str, Any]:
    """Run a side, and return its figures.

    `bare` is of a process that only imports the library; `pairs` are files of pairs with held-out
    words, at most one.
    """
    trained = SIDES[side](job)
    scores = [
        score._replace(name="rare") if score.name in pairs else score
        for score in score_report.run(trained.vectors, pairs=pairs)
    ]
    return {
        "words_per_second": job.words * job.settings["epochs"] / trained.train_seconds,
        "train_seconds": trained.train_seconds,
        "total_seconds": trained.usage.seconds,
        "peak_bytes": trained.usage.peak_bytes,
        "peak_bytes_above_import": trained.usage.peak_bytes - bare.peak_bytes,
        **{score.name: score.value for score in scores},
        "scores": score_report.summary(scores),
    }
