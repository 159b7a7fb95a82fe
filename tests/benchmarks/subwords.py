"""Compare lexrow.train --task=words with subwords to fastText, and to the same without subwords.

    python -m tests.benchmarks.subwords --corpus=FILE --json=FILE

Every run is a process of its own, one at a time. The text is first written as plain lines of at
most 1,000 words, without the words of `rare_words`, which all sides read; this is not timed. The
figures of a side:

- start to end: of the process that trains, with imports. lexrow.train also writes a checkpoint and
  scores the vectors; fastText saves its model;
- raw words/s: words of the text x epochs / seconds of the training loop; see the note of the report
  for what each side does in it;
- peak memory: the most resident memory of that process, and the same without the import;
- scores, computed in this process: of the benchmarks, and `rare`, Spearman's rho for the pairs of
  `rare_words`. Words without a row have vectors by their n-grams, so that all pairs are used;
  without subwords `rare` has no pair. Questions with such words are skipped, as the answer is
  searched in the vocabulary.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from app.types import NgramRule
from tests.benchmarks import harness, peers, programs, rare_words, words
from tests.benchmarks.harness import Report, Table
from tests.benchmarks.programs import OURS, Session
from tests.benchmarks.words import Trained

PEERS = {"fasttext": ("fasttext", "fasttext-wheel")}
WITHOUT = "lexrow without subwords"
MEASURES = (*words.MEASURES, *harness.scores(["rare"]))
_SUBWORDS = ("min_ngram", "max_ngram", "ngram_buckets")
# The preset has its own number of negatives, as it weighs shared ones.
_OF_PRESET = ("negatives",)
_LOSSES = {"negative_sampling": "ns", "hierarchical_softmax": "hs"}
NOTE = (
    "In the training loop: Lexrow compiles its step, and takes token ids that it kept in memory "
    "from counting the words. The preset lets 128 shared negatives count as 3 for each word; "
    "fastText draws 5. fastText reads and splits the text in every epoch; its seconds are "
    "from its own progress line, without reading the dictionary and making the table."
)


def define(values: Any) -> None:
    """Define the flags of the case."""
    words.define(values)
    del values.peers
    harness.define(values, "peers", "fasttext", "Peers to run beside Lexrow.", names=PEERS)
    harness.define(values, "min_ngram", 3, "The fewest characters of a subword.")
    harness.define(values, "max_ngram", 6, "The most characters of a subword.")
    harness.define(values, "ngram_buckets", 2_000_000, "Rows that subwords are hashed into.")


def run(options: Any) -> Report:
    """Run all sides `options.repeats` times; the logs are kept only in `options.keep`."""
    shared = {name: getattr(options, name) for name in (*words.SHARED, *_SUBWORDS)} | words.FIXED
    fixed = {*shared, *words.LIKE_PEERS, *words.REFUSED}
    with programs.session(options, PEERS, fixed) as session:
        session.imports[WITHOUT] = session.imports[OURS]
        whole, text, pairs = (session.scratch / name for name in ("whole", "text", "pairs"))
        sizes = words.write_text(options.corpus, whole)
        sizes["held_out"] = rare_words.hold_out(whole, text, pairs)
        count = sum(map(len, words.read_lines([str(text)], words.LINE_WORDS)))
        sides = {name: SIDES[name] for name in (OURS, WITHOUT, *options.peers)}
        rare = [str(pairs)] if sizes["held_out"] else []
        runs = words.compare(options, session, text, count, shared, sides, rare)
    title = (
        f"{count:,} words, {options.model}, n-grams of {options.min_ngram} to {options.max_ngram} "
        f"characters, epochs {options.epochs}, dim {options.dim}; {harness.count_runs(options)} a "
        "side"
    )
    tables = [Table(runs, MEASURES, "", PEERS)]
    return Report(title, session.machine, tables, {"corpus": sizes}, [NOTE])


def _lexrow(
    text: Path, folder: Path, settings: dict[str, Any], session: Session, without: bool = False
) -> Trained:
    """Run lexrow.train, with subwords or without."""
    from app.tasks import trained_vectors

    with tempfile.TemporaryDirectory(prefix="lexrow-run-") as workdir:
        given = settings | words.LIKE_PEERS | {"corpus": text, "workdir": workdir}
        config, dropped = ("words", _SUBWORDS) if without else ("subwords", _OF_PRESET)
        given = {name: value for name, value in given.items() if name not in dropped}
        usage, rows = programs.train(config, session.train_flags, given, folder)
        vectors = trained_vectors.load(workdir)
    figures = {name: rows[-1][name] for name in ("words", "train_seconds")}
    return figures | session.costs(OURS, usage), vectors


def _fasttext(text: Path, folder: Path, settings: dict[str, Any], session: Session) -> Trained:
    """Train by fastText on all cores in one process; another one writes its rows to files.

    The seed is always its own: train_unsupervised of the wheel 0.9.2 takes none.
    """
    from app.tasks import trained_vectors
    from app.text.vocabulary import Vocabulary

    more = {"loss": _LOSSES[settings["loss"]], "thread": programs.cores()}
    with tempfile.TemporaryDirectory(prefix="lexrow-run-") as place:
        files = {name: f"{place}/{name}" for name in ("model", "words", "rows.npy")}
        job = {"method": "train_unsupervised", "text": str(text), "settings": settings, **files}
        _, usage = programs.run("peers:fasttext_train", job | {"more": more}, folder / "train.log")
        programs.run("peers:fasttext_rows", job)
        tokens = Path(files["words"]).read_text(encoding="utf-8").split("\n")[:-1]
        rule = NgramRule(*(settings[name] for name in _SUBWORDS))
        known = Vocabulary(tokens, np.ones(len(tokens), np.int64), len(tokens))
        vectors = trained_vectors.compose_words(known, np.load(files["rows.npy"]), rule)
    read = text.read_bytes()  # fastText counts the end of a line as a word
    tokens_read = (len(read.split()) + read.count(b"\n")) * settings["epochs"]
    seconds = peers.fasttext_seconds(folder / "train.log", tokens_read, more["thread"])
    return {"train_seconds": seconds} | session.costs("fasttext", usage), vectors


SIDES: dict[str, words.Side] = {
    OURS: _lexrow,
    WITHOUT: functools.partial(_lexrow, without=True),
    "fasttext": _fasttext,
}


if __name__ == "__main__":
    harness.main(define, run)
