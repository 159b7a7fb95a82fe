"""The report at the end of a run: scores, the neighbors of a few words, and the next commands."""

from __future__ import annotations

from collections.abc import Sequence

from ..system.console import aligned
from ..types import WordVectors
from . import nearest_words, score_report
from .benchmark import Score
from .lexicon import make_lexicon

_WORDS = 6  # the number of words with neighbors in the report
_NEIGHBORS = 5
_NO_SCORES = "no scores: their word pairs and analogies come with gensim (pip install gensim)"


def closing(vectors: WordVectors, scores: Sequence[Score] | None, workdir: str) -> str:
    """Return the report at the end of a run.

    Args:
        vectors: The trained vectors.
        scores: The scores of the installed benchmarks of words; None for a run that is scored on
            held-out text, as vectors are not what it is for.
        workdir: The path of the workdir, for the commands.

    Returns:
        The scores of the benchmarks (a remark without gensim), the five nearest words of up to six
        words (see `_sample`), and commands to run next.
    """
    words = _sample(vectors)
    lists = nearest_words.nearest(make_lexicon(vectors), words, k=_NEIGHBORS)
    near = [", ".join(neighbor.word for neighbor in neighbors) for neighbors in lists]
    lines = aligned(list(zip(words, near, strict=True)), "<<")
    scored = []
    if scores is not None:
        scored = [score_report.table(scores, parts=False) if scores else _NO_SCORES]
    files = "heldout" if scores is None else "pairs"
    return "\n".join(
        (
            *scored,
            "nearest words:",
            *(f"  {line}" for line in lines),
            "next:",
            f"  lexrow neighbors --workdir={workdir} {words[-1] if words else 'WORD'}",
            f"  lexrow evaluate --workdir={workdir} --{files}=FILE",
            f"  lexrow export --workdir={workdir} --format=word2vec --output=vectors.txt",
            f"  tensorboard --logdir={workdir}",
        )
    )


def _sample(vectors: WordVectors) -> list[str]:
    """Return up to six words, evenly spaced by rank, for the report.

    They are chosen among words of five letters or more at ranks 100 to 4,999 (from 0). If there are
    none, among all words that have letters only; if there are none either, among all words.
    """
    words = [word for word in vectors.tokens[100:5000] if word.isalpha() and len(word) >= 5]
    words = words or [word for word in vectors.tokens if word.isalpha()] or vectors.tokens
    stride = max(1, len(words) // _WORDS)
    return words[::stride][:_WORDS]
