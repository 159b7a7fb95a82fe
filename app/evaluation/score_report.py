"""The benchmarks by name, and their scores as a table for people and as JSON for programs."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import UsageError
from ..system.console import aligned
from ..types import WordVectors
from . import analogy, similarity
from .benchmark import Score
from .lexicon import Lexicon, make_lexicon


def installed() -> tuple[str, ...]:
    """Return the names of all benchmarks if gensim, which has their files, is installed, or ()."""
    return tuple(benchmarks) if _folder() else ()


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


benchmarks: dict[str, Callable[[Lexicon], Score]] = {
    "ws353": lambda words: similarity.score(words, _gensim_file("wordsim353.tsv"), "ws353"),
    "simlex999": lambda words: similarity.score(words, _gensim_file("simlex999.txt"), "simlex999"),
    "analogy": lambda words: analogy.score(words, _gensim_file("questions-words.txt"), "analogy"),
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
        vectors: Word vectors.
        names: Names of benchmarks; by default the `installed` ones.
        pairs: Files of word pairs; the name of a file's score is its path.
        analogies: Files of analogies; the name of a file's score is its path.
        case: See `make_lexicon`.
        restrict: See `make_lexicon`.

    Returns:
        A score for each benchmark and each file, in this order.

    Raises:
        UsageError: There is no such benchmark, it needs gensim, or a file cannot be used.
    """
    names = installed() if names is None else names
    for name in names:
        if name not in benchmarks:
            raise UsageError(
                f"--benchmarks={name}: no such benchmark; choose from {', '.join(benchmarks)}"
            )
    lexicon = make_lexicon(vectors, case, restrict)
    return [
        *(benchmarks[name](lexicon) for name in names),
        *(similarity.score(lexicon, path, str(path)) for path in pairs),
        *(analogy.score(lexicon, path, str(path)) for path in analogies),
    ]


def table(scores: Sequence[Score], parts: bool = True) -> str:
    """Return scores in aligned columns, followed by each protocol with the names of its scores.

    Args:
        scores: The scores.
        parts: Whether to list the parts of each score as well.

    Returns:
        The table, without a final line break.
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

    Args:
        scores: The scores; of several with one name, the last is kept.

    Returns:
        Name -> the other fields of `Score` by name, with `parts` in the same form.
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
