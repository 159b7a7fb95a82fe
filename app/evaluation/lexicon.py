"""The vocabulary as a scorer sees it: which spellings are the same word, which words may be used.

A score depends on these choices by more than a factor of two, so they are made here, once, and
`protocol` says them out loud beside every score.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..errors import UsageError
from ..types import WordVectors

# How a spelling is compared. Where spellings fall together, the most frequent one stands for all.
CASES = {"fold": str.lower, "exact": str}
_CASE_NAMES = {"fold": "letter case ignored (the most frequent spelling wins)", "exact": "exact"}


class Lexicon(NamedTuple):
    """V words that have a direction, most frequent first.

    words: V spellings. keys: V spellings as compared. rows: key -> all its rows, the most frequent
    first. matrix: (V, D) float32. norms: (V,) float64, finite and positive. case: a name in
    `CASES`. considered, available: words allowed by the limit, and words in the vectors. unusable:
    words among those considered that were left out, their vector being zero or not finite.
    """

    words: list[str]
    keys: list[str]
    rows: dict[str, tuple[int, ...]]
    matrix: np.ndarray
    norms: np.ndarray
    case: str
    considered: int
    available: int
    unusable: int


def lexicon(vectors: WordVectors, case: str = "fold", restrict: int = 0) -> Lexicon:
    """The words of `vectors` that a score may use.

    case: `fold` compares lower-cased spellings, `exact` compares them as they are. restrict: use
    only the first (most frequent) words; 0 uses all. A vector that is zero or not finite has no
    cosine: its word counts as unknown. UsageError for another case or a negative limit.
    """
    if case not in CASES:
        raise UsageError(f"--case={case}: no such comparison; choose one of {', '.join(CASES)}")
    if restrict < 0:
        raise UsageError(f"--restrict={restrict}: give a number of words, or 0 for all")
    considered = min(restrict or len(vectors.tokens), len(vectors.tokens))
    words, matrix = vectors.tokens[:considered], vectors.matrix[:considered]
    # Squares of large float32 numbers overflow float32.
    norms = np.sqrt(np.einsum("vd,vd->v", matrix, matrix, dtype=np.float64))
    usable = np.isfinite(norms) & (norms > 0)
    if not usable.all():
        words = [word for word, keep in zip(words, usable.tolist(), strict=True) if keep]
        matrix, norms = matrix[usable], norms[usable]
    keys = [CASES[case](word) for word in words]
    rows: dict[str, tuple[int, ...]] = {}
    for row, key in enumerate(keys):
        rows[key] = rows.get(key, ()) + (row,)
    return Lexicon(
        words=words,
        keys=keys,
        rows=rows,
        matrix=matrix,
        norms=norms,
        case=case,
        considered=considered,
        available=len(vectors.tokens),
        unusable=considered - len(words),
    )


def first_row(lexicon: Lexicon, word: str) -> int | None:
    """Row of the most frequent spelling of `word`, or None for an unknown word."""
    rows = lexicon.rows.get(CASES[lexicon.case](word))
    return rows[0] if rows else None


def unit_rows(lexicon: Lexicon, rows: slice | np.ndarray) -> np.ndarray:
    """Vectors of length 1 of the chosen rows: (N, D) float32."""
    return (lexicon.matrix[rows] / lexicon.norms[rows, None]).astype(np.float32)


def protocol(lexicon: Lexicon) -> str:
    """The choices that a score on this lexicon rests on, in one line."""
    which = "all" if lexicon.considered == lexicon.available else f"first {lexicon.considered:,} of"
    line = f"vocabulary: {which} {lexicon.available:,} words; spelling: {_CASE_NAMES[lexicon.case]}"
    if lexicon.unusable:
        line += f"; {lexicon.unusable:,} words with a zero or non-finite vector count as unknown"
    return line
