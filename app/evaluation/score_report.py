"""The benchmarks by name, and their scores as a table for people and as JSON for programs."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path

from app.errors import UsageError
from app.evaluation import analogy, similarity
from app.evaluation.lexicon import Lexicon, lexicon
from app.evaluation.scores import Score
from app.types import WordVectors


def _carried(name: str) -> Path:
    """A benchmark file that the gensim wheel carries (`gensim.test.utils.datapath`).

    Found without importing gensim, which takes 1 to 2 seconds and 118 MB that no score needs.
    """
    spec = importlib.util.find_spec("gensim")
    if spec is None or spec.origin is None:
        raise UsageError(f"{name}: gensim, which carries this file, is missing; run `make setup`")
    return Path(spec.origin).parent / "test" / "test_data" / name


benchmarks: dict[str, Callable[[Lexicon], Score]] = {
    "ws353": lambda words: similarity.score(words, _carried("wordsim353.tsv"), "ws353"),
    "simlex999": lambda words: similarity.score(words, _carried("simlex999.txt"), "simlex999"),
    "analogy": lambda words: analogy.score(words, _carried("questions-words.txt"), "analogy"),
}


def run(
    vectors: WordVectors,
    names: Sequence[str] = tuple(benchmarks),
    pairs: Sequence[str] = (),
    analogies: Sequence[str] = (),
    case: str = "fold",
    restrict: int = 0,
) -> list[Score]:
    """Scores of the named benchmarks, then of one's own files of pairs and of analogies.

    case, restrict: as of `lexicon`. A score of a file bears the file's path as its name. UsageError
    for a benchmark that does not exist or a file that cannot be used.
    """
    for name in names:
        if name not in benchmarks:
            raise UsageError(
                f"--benchmarks={name}: no such benchmark; choose from {', '.join(benchmarks)}"
            )
    words = lexicon(vectors, case, restrict)
    return [
        *(benchmarks[name](words) for name in names),
        *(similarity.score(words, path, str(path)) for path in pairs),
        *(analogy.score(words, path, str(path)) for path in analogies),
    ]


def table(scores: Sequence[Score], parts: bool = True) -> str:
    """Scores, and their parts if asked, in aligned columns, then the protocol of each."""
    rows = [("benchmark", "measure", "score", "used", "skipped", "")]
    for score in scores:
        rows.append(_cells(score))
        rows += [_cells(part, "  ") for part in score.parts if parts]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for name, measure, *numbers, note in rows:
        cells = [name.ljust(widths[0]), measure.ljust(widths[1])]
        cells += [cell.rjust(width) for cell, width in zip(numbers, widths[2:5], strict=True)]
        lines.append("  ".join([*cells, note]).rstrip())
    protocols: dict[str, list[str]] = {}
    for score in scores:
        protocols.setdefault(score.protocol, []).append(score.name)
    lines += [f"protocol of {', '.join(names)}: {line}" for line, names in protocols.items()]
    return "\n".join(lines)


def summary(scores: Sequence[Score]) -> dict[str, dict]:
    """Scores by name as plain values for JSON; `value` is None where a score is undefined."""
    return {
        score.name: {
            "measure": score.measure,
            "value": score.value,
            "used": score.used,
            "skipped": score.skipped,
            "protocol": score.protocol,
            "note": score.note,
            "parts": summary(score.parts),
        }
        for score in scores
    }


def _cells(score: Score, indent: str = "") -> tuple[str, ...]:
    value = "n/a" if score.value is None else f"{score.value:.3f}"
    note = f"({score.note})" if score.note else ""
    name = indent + score.name
    return (name, score.measure, value, f"{score.used:,}", f"{score.skipped:,}", note)
