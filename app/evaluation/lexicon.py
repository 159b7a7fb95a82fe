"""The words that a score may use, and which spellings are the same word.

A score changes by more than a factor of two with these choices. So they are made here, once, and
`Lexicon.protocol` describes them beside every score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ..errors import UsageError
from ..text.phrase_table import join_words
from ..text.unicode_rules import FOLDED, normalize
from ..types import NgramVectors, WordVectors

# The values of --case, and their descriptions. Of spellings that are compared as equal the most
# frequent is used.
_CASES = {
    "fold": f"letter case ignored ({FOLDED}; the most frequent spelling wins)",
    "exact": "exact",
}


class Lexicon(NamedTuple):
    """The V words that a score may use, most frequent first.

    Attributes:
        words: The V spellings.
        rows: The rows of all spellings that are compared as equal, the most frequent first.
        matrix: Vectors, (V, D) float32.
        norms: Lengths of the vectors, (V,) float64, finite and positive.
        case: Value of --case.
        form: The form in which the words of the text were written.
        protocol: One line that describes the words and the comparison of spellings.
        ngrams: The vectors of n-grams, which give other words their vectors; None if an unknown
            word has none.
        zeros: Words that are left out because their vectors are zero.
    """

    words: list[str]
    rows: dict[str, tuple[int, ...]]
    matrix: np.ndarray
    norms: np.ndarray
    case: str
    form: str
    protocol: str
    ngrams: NgramVectors | None = None
    zeros: Sequence[str] = ()


def make_lexicon(vectors: WordVectors, case: str = "fold", restrict: int = 0) -> Lexicon:
    """Return the words of `vectors` that a score may use.

    A word whose vector is zero or not finite is left out, so it counts as unknown: it has no
    cosine.

    Args:
        vectors: Word vectors.
        case: `fold` compares spellings in the form `FOLDED`, `exact` in the form that the words of
            the text have.
        restrict: The number of most frequent words to use; 0 uses all.

    Returns:
        The words and their vectors.

    Raises:
        UsageError: There is no such case, or the limit is negative.
    """
    if case not in _CASES:
        raise UsageError(f"--case={case}: no such comparison; choose one of {', '.join(_CASES)}")
    if restrict < 0:
        raise UsageError(f"--restrict={restrict}: give a number of words, or 0 for all")
    available = len(vectors.tokens)
    considered = min(restrict or available, available)
    words, matrix = vectors.tokens[:considered], vectors.matrix[:considered]
    # Squares of large float32 numbers overflow float32.
    norms = np.sqrt(np.einsum("vd,vd->v", matrix, matrix, dtype=np.float64))
    usable = np.isfinite(norms) & (norms > 0)
    zeros = [words[row] for row in np.flatnonzero(norms == 0)]
    if not usable.all():
        words = [word for word, keep in zip(words, usable.tolist(), strict=True) if keep]
        matrix, norms = matrix[usable], norms[usable]
    keys = normalize(words, _key_form(case, vectors.form))
    rows: dict[str, tuple[int, ...]] = {}
    for row, key in enumerate(keys):
        rows[key] = rows.get(key, ()) + (row,)
    which = "all" if considered == available else f"first {considered:,} of"
    protocol = f"vocabulary: {which} {available:,} words; spelling: {_CASES[case]}"
    if unusable := considered - len(words):
        protocol += f"; {unusable:,} words with a zero or non-finite vector count as unknown"
    parts = words, rows, matrix, norms, case, vectors.form, protocol, vectors.ngrams, zeros
    return Lexicon(*parts)


def _key_form(case: str, form: str) -> str:
    """Return the form in which spellings are compared."""
    return FOLDED if case == "fold" else form


def fold(lexicon: Lexicon, words: Iterable[str]) -> list[str]:
    """Return words as they are compared.

    Args:
        lexicon: Has the comparison of spellings.
        words: The words.
    """
    return normalize(words, _key_form(lexicon.case, lexicon.form))


def first_row(lexicon: Lexicon, word: str) -> int | None:
    """Return the row of a word: the row of its most frequent spelling, if case is ignored.

    Args:
        lexicon: The words.
        word: A word, in any spelling.

    Returns:
        The row, or None for an unknown word.
    """
    rows = find_rows(lexicon, word)
    return rows[0] if rows else None


def find_rows(lexicon: Lexicon, word: str) -> tuple[int, ...]:
    """Return the rows of all spellings of a word, the most frequent first; none if it is unknown.

    An unknown word with white space is looked up as a phrase: `new york` as `new_york`.

    Args:
        lexicon: The words.
        word: A word or a phrase, in any spelling.
    """
    (key,) = fold(lexicon, [word])
    if not key:  # a token may have invisible characters only
        return tuple(row for row in lexicon.rows.get(key, ()) if lexicon.words[row] == word)
    return lexicon.rows.get(key) or lexicon.rows.get(join_words(key), ())


def unit_rows(lexicon: Lexicon, rows: slice | np.ndarray) -> np.ndarray:
    """Return the vectors of some rows, divided by their length.

    Args:
        lexicon: The words and their vectors.
        rows: The N rows, as a slice or an array of integers.

    Returns:
        Unit vectors, (N, D) float32.
    """
    return (lexicon.matrix[rows] / lexicon.norms[rows, None]).astype(np.float32)


def unit_vectors(
    lexicon: Lexicon,
    words: Sequence[str],
    find: Callable[[Lexicon, str], int | None] = first_row,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the vectors of words, divided by their length, also of words without a row.

    With n-grams, a word without a row has the mean of their vectors, of its spelling in the text;
    with --case=fold, in lower case.

    Args:
        lexicon: The words and their vectors.
        words: N words.
        find: Returns the row of a word, or None.

    Returns:
        Unit vectors (N, D) float32, zero for an unknown word, and whether each word is known, (N,).
    """
    rows = [find(lexicon, word) for word in words]
    known_N = np.array([row is not None for row in rows], bool)
    units_ND = np.zeros((len(words), lexicon.matrix.shape[1]), np.float32)
    units_ND[known_N] = unit_rows(lexicon, np.array([r for r in rows if r is not None], np.int64))
    unseen = np.flatnonzero(~known_N)
    if lexicon.ngrams is None or not len(unseen):
        return units_ND, known_N
    # It imports TensorFlow, which takes seconds and vectors without n-grams do not need.
    from ..text.subwords import compose_unseen

    spellings = normalize((words[index] for index in unseen), lexicon.form)
    if lexicon.case == "fold" and lexicon.form != FOLDED:
        spellings = [spelling.lower() for spelling in spellings]
    vectors_ND = compose_unseen(spellings, lexicon.ngrams)
    lengths_N = np.linalg.norm(vectors_ND.astype(np.float64), axis=1)
    known_N[unseen] = usable = np.isfinite(lengths_N) & (lengths_N > 0)
    units_ND[unseen[usable]] = vectors_ND[usable] / lengths_N[usable, np.newaxis]
    return units_ND, known_N
