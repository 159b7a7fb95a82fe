"""Score vectors by the named benchmarks, and report the scores to people and to programs."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ..errors import UsageError
from ..system.console import aligned
from ..text.unicode_rules import FOLDED, normalize
from ..types import NgramVectors, WordVectors
from .benchmarks import Score, read_pairs, score_analogies, score_pairs
from .lexicon import Lexicon, make_lexicon, nearest, spell

_WORDS = 6  # the number of words with neighbors in the report at the end of a run
_NEIGHBORS = 5
_EPOCH_WORDS, _ANALOGY_WORDS = 200_000, 10_000  # see `make_epoch_scorer`
_NO_SCORES = "no scores: their word pairs and analogies come with gensim (pip install gensim)"


def _folder() -> Path | None:
    """Return the folder of the benchmark files of gensim, or None if gensim is not installed.

    `gensim.test.utils.datapath` gives the same. Importing gensim would take 1 to 2 seconds and
    118 MB, which no score needs.
    """
    spec = importlib.util.find_spec("gensim")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "test" / "test_data"


def _gensim_file(name: str) -> Path:
    """Return the path of a benchmark file of gensim; raise UsageError without gensim."""
    folder = _folder()
    if folder is None:
        raise UsageError(
            f"--benchmarks: {name} comes with gensim, which is not installed; run "
            "pip install gensim, or give --benchmarks= and files of your own (--pairs, --analogies)"
        )
    return folder / name


# By name, the function that scores words by a benchmark, and its file.
_PAIRS = {"ws353": "wordsim353.tsv", "simlex999": "simlex999.txt"}
benchmarks: dict[str, tuple[Callable[[Lexicon, Path, str], Score], str]] = {
    **{name: (score_pairs, file) for name, file in _PAIRS.items()},
    "analogy": (score_analogies, "questions-words.txt"),
}


def run(
    vectors: WordVectors,
    names: Sequence[str] | None = None,
    pairs: Sequence[str] = (),
    analogies: Sequence[str] = (),
    case: str = "fold",
    restrict: int = 0,
) -> list[Score]:
    """Score vectors by the named benchmarks, then by files of pairs and of analogies.

    Args:
        names: Names of benchmarks; by default all, if gensim is installed.
        pairs: Files of word pairs; the name of a file's score is its path.
        analogies: Files of analogies; the name of a file's score is its path.
        case: See `make_lexicon`.
        restrict: See `make_lexicon`.

    Raises:
        UsageError: There is no such benchmark, it needs gensim, or a file cannot be used.
    """
    if names is None:
        names = tuple(benchmarks) if _folder() else ()
    for name in names:
        if name not in benchmarks:
            raise UsageError(
                f"--benchmarks={name}: no such benchmark; choose from {', '.join(benchmarks)}"
            )
    lexicon = make_lexicon(vectors, case, restrict)
    return [
        *(benchmarks[name][0](lexicon, _gensim_file(benchmarks[name][1]), name) for name in names),
        *(score_pairs(lexicon, path, str(path)) for path in pairs),
        *(score_analogies(lexicon, path, str(path)) for path in analogies),
    ]


def make_epoch_scorer(
    tokens: Sequence[str],
    form: str,
    read: Callable[[np.ndarray], np.ndarray],
    read_ngrams: Callable[[Sequence[str]], NgramVectors] | None = None,
) -> Callable[[], Callable[[], dict[str, float]]] | None:
    """Return a function that reads the vectors that the benchmarks need (see `Job.watch`).

    The scores of word pairs are those of `run`. The analogies are of the 10,000 most frequent
    words, as `analogy_10k`: with all words they take seconds. Words beyond the 200,000 most
    frequent count as unknown: with n-grams they have the vectors of these, without their own row.

    Args:
        tokens: The V words, most frequent first.
        form: The form of their spelling, as `WordVectors.form`.
        read: Returns the vectors of words by their ids, (N, D) float32.
        read_ngrams: Returns the vectors of the n-grams of words, from which unknown words get
            theirs; None if these have no vector.

    Returns:
        The function, or None without gensim.
    """
    if _folder() is None:
        return None

    @functools.cache
    def words_of_pairs() -> list[str]:
        """Return the words of all pairs."""
        pairs = [pair for name in _PAIRS.values() for pair in read_pairs(_gensim_file(name))]
        return [word for pair in pairs for word in pair[:2]]

    @functools.cache
    def ids() -> np.ndarray:
        """Return the ids of the words that the scores need, rising; none if no pair is known."""
        wanted = {*normalize(words_of_pairs(), FOLDED)}
        keys = normalize(tokens[:_EPOCH_WORDS], FOLDED)
        found = [number for number, key in enumerate(keys) if key in wanted]
        return np.union1d(found, np.arange(min(len(tokens), _ANALOGY_WORDS) if found else 0))

    def start() -> Callable[[], dict[str, float]]:
        """Read the vectors, and return the function that scores them."""
        ids_N = ids().astype(np.int32)
        if not len(ids_N):
            return dict
        ngrams = read_ngrams(spell(words_of_pairs(), form)) if read_ngrams else None
        words = [tokens[number] for number in ids_N]
        vectors = WordVectors(words, read(ids_N), ngrams=ngrams, form=form)
        return functools.partial(_score_epoch, vectors)

    return start


def _score_epoch(vectors: WordVectors) -> dict[str, float]:
    """Return the scores of an epoch by name; see `make_epoch_scorer`."""
    (analogy,) = run(vectors, ["analogy"], restrict=_ANALOGY_WORDS)
    scores = [*run(vectors, list(_PAIRS)), analogy._replace(name="analogy_10k")]
    return {score.name: score.value for score in scores if score.value is not None}


def table(scores: Sequence[Score], parts: bool = True) -> str:
    """Return scores in aligned columns, followed by each protocol with the names of its scores.

    Args:
        parts: Whether to list the parts of each score as well.
    """
    rows: list[tuple[str, ...]] = [("benchmark", "measure", "score", "used", "skipped", "")]
    for score in scores:
        rows.append(_cells(score))
        rows += [_cells(part, "  ") for part in score.parts if parts]
    lines = aligned(rows, "<<>>><")
    protocols: dict[str, list[str]] = {}
    for score in scores:
        words = f" ({score.words})" if score.words else ""
        protocols.setdefault(score.protocol, []).append(score.name + words)
    lines += [f"protocol of {', '.join(names)}: {line}" for line, names in protocols.items()]
    return "\n".join(lines)


def summary(scores: Sequence[Score]) -> dict[str, dict]:
    """Return the scores by name, as values for JSON; an undefined score has the value None.

    The parts have the same form. Of several scores with one name, the last is kept.
    """
    record = {}
    for score in scores:
        values = score._asdict() | {"parts": summary(score.parts)}
        record[values.pop("name")] = values
    return record


def _cells(score: Score, indent: str = "") -> tuple[str, ...]:
    """Return the cells of a score's line in the table; an undefined score is `n/a`."""
    value = "n/a" if score.value is None else f"{score.value:.3f}"
    note = f"({score.note})" if score.note else ""
    name = indent + score.name
    return (name, score.measure, value, f"{score.used:,}", f"{score.skipped:,}", note)


def closing(vectors: WordVectors, scores: Sequence[Score] | None, workdir: str) -> str:
    """Return the report at the end of a run: scores, neighbors of some words, and next commands.

    Args:
        scores: The scores of the installed benchmarks, empty without gensim; None for a run that is
            scored on held-out text, as vectors are not what it is for.
        workdir: The path of the workdir, for the commands.
    """
    words = _sample(vectors)
    lists = nearest(make_lexicon(vectors), words, k=_NEIGHBORS)
    near = [", ".join(word for word, _ in neighbors) for neighbors in lists]
    scored = []
    if scores is not None:
        scored = [table(scores, parts=False) if scores else _NO_SCORES]
    files = "heldout" if scores is None else "pairs"
    return "\n".join(
        (
            *scored,
            "nearest words:",
            *(f"  {line}" for line in aligned(list(zip(words, near, strict=True)), "<<")),
            "next:",
            f"  lexrow neighbors --workdir={workdir} {words[-1] if words else 'WORD'}",
            f"  lexrow evaluate --workdir={workdir} --{files}=FILE",
            f"  lexrow export --workdir={workdir} --format=word2vec --output=vectors.txt",
            f"  tensorboard --logdir={workdir}/tensorboard",
        )
    )


def _sample(vectors: WordVectors) -> list[str]:
    """Return up to six words, evenly spaced by rank, for the report.

    They are chosen among words of five letters or more at ranks 100 to 4,999 (from 0). If there are
    none, among all words that have letters only; if there are none either, among all words.
    """
    words = [word for word in vectors.tokens[100:5000] if word.isalpha() and len(word) >= 5]
    words = words or [word for word in vectors.tokens if word.isalpha()] or vectors.tokens
    return words[:: max(1, len(words) // _WORDS)][:_WORDS]
