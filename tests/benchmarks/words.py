"""Compare lexrow.train --task=words with gensim, with the same text, settings and scores.

    python -m tests.benchmarks.words --corpus=FILE --json=FILE

Every run is a process of its own, one at a time. The text is first written as plain lines of at
most 1,000 words, which both sides read; this is not timed. The figures of a side:

- start to end: from the start of the process to its end, with the vectors saved as a word2vec
  binary file. Lexrow has two processes, lexrow.train and lexrow.export. lexrow.train also writes a
  checkpoint and scores the vectors, which gensim does not;
- raw words/s: words of the text x epochs / seconds of the training loop; see the note of the report
  for what each side does in it;
- peak memory: the most resident memory of a process, and the same without the peak of a process
  that only imports the library.

Scores are computed in this process from the saved files: with the whole vocabulary, case folded.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from app.errors import UsageError
from app.evaluation import score_report
from app.settings import CorpusConfig
from app.text import corpus, vector_files
from app.text.reading import blocks
from app.types import WordVectors
from tests.benchmarks import harness, programs
from tests.benchmarks.harness import Measure, Report, Runs, Table
from tests.benchmarks.programs import OURS, Session

PEERS = {"gensim": ("gensim", "gensim")}
LOSSES = ("negative_sampling", "hierarchical_softmax")
SCORES = tuple(score_report.benchmarks)
MEASURES = (
    harness.TOTAL,
    Measure("train_seconds", "training loop, s"),
    Measure("words_per_second", "raw words/s of the loop", ",.0f", drawn=True),
    Measure("input_wait", "waiting for input", ".1%"),
    harness.PEAK,
    harness.ABOVE_IMPORT,
    *harness.scores(SCORES),
)
# Words of a line, as in word2vec.c (MAX_SENTENCE_LENGTH). gensim's `corpus_file` silently drops the
# words of a line after the first 10,000 (MAX_SENTENCE_LEN of gensim/models/word2vec_inner.pyx).
LINE_WORDS = 1000
# Of both sides, from Mikolov et al. 2013, arXiv 1310.4546, sections 2.2 and 2.3, and word2vec.c.
FIXED = {"negatives": 5, "subsample": 1e-3}
# What the peers do, by flags of lexrow.train; and flags that would make another task of it.
LIKE_PEERS = {"tokenizer": "whitespace", "documents": "line"}
REFUSED = ("task", "vocab", "max_vocab_size", "plan_only")
SHARED = ("model", "loss", "dim", "window", "epochs", "min_count")
NOTE = (
    "In the training loop: Lexrow compiles its step, and takes token ids that it kept in memory "
    "from counting the words: it reads and splits the text once, before the loop, but in every "
    "epoch with --train_flags=--cache=none. gensim reads and splits the text in every epoch."
)


def define(values: Any) -> None:
    """Define the flags of the case."""
    for name in ("corpus", "dim", "epochs", "min_count", "train_flags", "keep"):
        harness.define(values, name)
    harness.define(values, "model", "skipgram", "The model.", choices=("skipgram", "cbow"))
    harness.define(values, "loss", LOSSES[0], "The output layer of both sides.", choices=LOSSES)
    harness.define(values, "window", 5, "Words to either side of a word.")
    harness.define(values, "peers", "gensim", "Peers to run beside Lexrow.", names=PEERS)


def run(options: Any) -> Report:
    """Run both sides `options.repeats` times; vectors and logs are kept only in `options.keep`."""
    shared = {name: getattr(options, name) for name in SHARED} | FIXED
    with programs.session(options, PEERS, {*shared, *LIKE_PEERS, *REFUSED}) as session:
        text = session.scratch / "corpus.txt"
        sizes = write_text(options.corpus, text)
        sides = {name: SIDES[name] for name in (OURS, *options.peers)}
        runs = compare(options, session, text, sizes["words"], shared, sides)
    title = (
        f"{sizes['words']:,} words, {options.model}, {options.loss}, epochs {options.epochs}, dim "
        f"{options.dim}, window {options.window}, min_count {options.min_count}; "
        f"{harness.count_runs(options)} a side"
    )
    tables = [Table(runs, MEASURES, "", PEERS)]
    return Report(title, session.machine, tables, {"corpus": sizes}, [NOTE])


# The figures of a run: `train_seconds`, `words` (over all epochs, if the side counts them), costs
# and others; and the vectors.
Trained = tuple[dict[str, Any], WordVectors]
# Trains on a text, with its files in a folder and the settings by flag of lexrow.train.
Side = Callable[[Path, Path, dict[str, Any], Session], Trained]


def compare(
    options: Any,
    session: Session,
    text: Path,
    words: int,
    shared: dict[str, Any],
    sides: Mapping[str, Side],
    pairs: Sequence[str] = (),
) -> Runs:
    """Train and score every side by turns.

    Args:
        options: The flags, with `repeats` and `epochs`.
        session: The session of the case.
        text: The text.
        words: The number of its words.
        shared: The settings of all sides, without the seed.
        sides: The sides by name.
        pairs: A file of word pairs, whose score is `rare`, or none.

    Returns:
        The figures of each run by side.
    """

    def run_one(side: str, seed: int) -> dict[str, Any]:
        folder, wanted = session.place(side, seed), words * options.epochs
        figures, vectors = sides[side](text, folder, shared | {"seed": seed}, session)
        programs.check_count(side, figures.get("words", wanted), wanted, "words")
        scores = [
            score._replace(name="rare") if score.name in pairs else score
            for score in score_report.run(vectors, pairs=pairs)
        ]
        return {
            **figures,
            "words_per_second": wanted / figures["train_seconds"],
            **{score.name: score.value for score in scores},
            "scores": score_report.summary(scores),
        }

    groups = {"": {side: side for side in sides}}
    return harness.by_turns(groups, options.repeats, run_one)[""]


def _lexrow(text: Path, folder: Path, settings: dict[str, Any], session: Session) -> Trained:
    """Train, and export to vectors.bin in the folder."""
    vectors = folder / "vectors.bin"
    with tempfile.TemporaryDirectory(prefix="lexrow-run-") as workdir:
        given = settings | LIKE_PEERS | {"corpus": text, "workdir": workdir}
        trained, rows = programs.train("words", session.train_flags, given, folder)
        export = {"workdir": workdir, "format": "word2vec_binary", "output": vectors}
        exported = programs.command(["app.export"], export, folder / "export.log")
    figures = {name: rows[-1][name] for name in ("words", "train_seconds")}
    figures["input_wait"] = programs.mean(rows, "input_wait", "train_seconds")
    return figures | session.costs(OURS, trained, exported), vector_files.read(vectors)


def _gensim(text: Path, folder: Path, settings: dict[str, Any], session: Session) -> Trained:
    """Train by gensim on all cores, which writes vectors.bin in the folder."""
    vectors = folder / "vectors.bin"
    files = {"text": str(text), "vectors": str(vectors), "workers": programs.cores()}
    figures, usage = programs.run("peers:gensim_words", settings | files, folder / "train.log")
    return figures | session.costs("gensim", usage), vector_files.read(vectors)


SIDES: dict[str, Side] = {OURS: _lexrow, "gensim": _gensim}


def write_text(files: str, path: Path) -> dict[str, Any]:
    """Write the words of a corpus in order, in lines of at most 1,000 words.

    Args:
        files: The value of --corpus.
        path: The file to write.

    Returns:
        `files` (the names without folders), `words`, `bytes` and `line_words`, for JSON.

    Raises:
        UsageError: The corpus is not possible, or has no word.
    """
    sources = corpus.resolve(CorpusConfig(corpus=files))
    words = 0
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for line in read_lines(sources, LINE_WORDS):
            file.write(" ".join(line) + "\n")
            words += len(line)
    if not words:
        raise UsageError(f"--corpus={files}: no word in these files; give files with text")
    names = [Path(source).name for source in sources]
    return {"files": names, "words": words, "bytes": path.stat().st_size, "line_words": LINE_WORDS}


def read_lines(sources: Sequence[str], longest: int) -> Iterator[list[str]]:
    """Yield the words of each line of files; a line of more than `longest` becomes several."""
    for source in sources:
        for block in blocks(source):
            for line in block.decode().split("\n"):
                words = line.split()
                for start in range(0, len(words), longest):
                    yield words[start : start + longest]


if __name__ == "__main__":
    harness.main(define, run)
