"""What a person sees at the end of a run: scores, a few neighbours, and what comes next."""

from __future__ import annotations

from .. import __name__ as PACKAGE
from ..types import WordVectors
from . import nearest_words, score_report
from .lexicon import lexicon

_WORDS = 6  # whose neighbours are shown
_NEIGHBOURS = 5
_NO_SCORES = "no scores: their word pairs and analogies come with gensim (pip install gensim)"


def closing(vectors: WordVectors, workdir: str) -> str:
    """Scores on the carried benchmarks, neighbours of some words, and commands to go on with."""
    shown = _sample(vectors)
    found = nearest_words.nearest(lexicon(vectors), shown, k=_NEIGHBOURS)
    width = max((len(word) for word in shown), default=0)
    near = [
        f"  {word.ljust(width)}  {', '.join(neighbour.word for neighbour in row)}"
        for word, row in zip(shown, found, strict=True)
    ]
    scores = score_report.run(vectors)
    return "\n".join(
        (
            score_report.table(scores, parts=False) if scores else _NO_SCORES,
            "nearest words:",
            *near,
            "next:",
            f"  python -m {PACKAGE}.neighbors --workdir={workdir} {shown[-1] if shown else 'WORD'}",
            f"  python -m {PACKAGE}.evaluate --workdir={workdir} --pairs=FILE",
            f"  python -m {PACKAGE}.export --workdir={workdir} --format=word2vec "
            "--output=vectors.txt",
            f"  tensorboard --logdir={workdir}",
        )
    )


def _sample(vectors: WordVectors) -> list[str]:
    """Words of content: letters only, five or more, of ranks spread below the most frequent."""
    words = [word for word in vectors.tokens[100:5000] if word.isalpha() and len(word) >= 5]
    words = words or [word for word in vectors.tokens if word.isalpha()] or vectors.tokens
    stride = max(1, len(words) // _WORDS)
    return words[::stride][:_WORDS]
