"""The words that a score may use, the spellings that are the same word, and nearest words.

A score changes by more than a factor of two with these choices. So they are made here, once, and
`Lexicon.protocol` describes them beside every score.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..errors import UsageError
from ..system.console import show_progress
from ..text.subwords import compose_unseen
from ..text.unicode_rules import FOLDED, normalize
from ..text.vocabulary import JOINT, close_names, join_words
from ..types import NgramVectors, WordVectors

# The values of --case, and their descriptions. Of spellings that are compared as equal the most
# frequent is used.
_CASES = {
    "fold": f"letter case ignored ({FOLDED}; the most frequent spelling wins)",
    "exact": "exact",
}
# One block of cosines is 8 MB, which stays in the processor's cache between product and argmax:
# 16,242 queries x 67,871 words x 100 columns took 4.4 s of processor time, against 5.3 s in blocks
# of 512 x 16,384 and 7.1 s in blocks of 256 x 8,192.
_QUERIES_PER_BLOCK = 2_048
_ROWS_PER_BLOCK = 1_024

_NO_WORD = re.compile(r"^$|\s|[\ud800-\udfff]")  # nothing, white space, half a surrogate pair
Neighbors = list[tuple[str, float]]  # words, each with its cosine (-1 to 1)


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
        case: `fold` compares spellings in the form `FOLDED`, `exact` in the form that the words of
            the text have.
        restrict: The number of most frequent words to use; 0 uses all.
    """
    available = len(vectors.tokens)
    considered = min(restrict or available, available)
    words, matrix, *_ = vectors.first(restrict)
    # Squares of large float32 numbers overflow float32.
    norms = np.sqrt(np.einsum("vd,vd->v", matrix, matrix, dtype=np.float64))
    usable = np.isfinite(norms) & (norms > 0)
    zeros = [words[row] for row in np.flatnonzero(norms == 0)]
    if not usable.all():
        words = [word for word, keep in zip(words, usable.tolist(), strict=True) if keep]
        matrix, norms = matrix[usable], norms[usable]
    rows: dict[str, tuple[int, ...]] = {}
    for row, key in enumerate(normalize(words, FOLDED if case == "fold" else vectors.form)):
        rows[key] = rows.get(key, ()) + (row,)
    which = "all" if considered == available else f"first {considered:,} of"
    protocol = f"vocabulary: {which} {available:,} words; spelling: {_CASES[case]}"
    if unusable := considered - len(words):
        protocol += f"; {unusable:,} words with a zero or non-finite vector count as unknown"
    parts = words, rows, matrix, norms, case, vectors.form, protocol, vectors.ngrams, zeros
    return Lexicon(*parts)


def find_rows(lexicon: Lexicon, word: str) -> tuple[int, ...]:
    """Return the rows of all spellings of a word, the most frequent first; none if it is unknown.

    An unknown word with white space is looked up as a phrase: `new york` as `new_york`.
    """
    (key,) = normalize([word], FOLDED if lexicon.case == "fold" else lexicon.form)
    if not key:  # a token may have invisible characters only
        return tuple(row for row in lexicon.rows.get(key, ()) if lexicon.words[row] == word)
    return lexicon.rows.get(key) or lexicon.rows.get(join_words(key), ())


def unit_rows(lexicon: Lexicon, rows: slice | np.ndarray) -> np.ndarray:
    """Return the vectors of N rows, divided by their length, (N, D) float32."""
    return (lexicon.matrix[rows] / lexicon.norms[rows, None]).astype(np.float32)


def unit_vectors(
    lexicon: Lexicon, words: Sequence[str], rows: Sequence[int | None] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the vectors of words, divided by their length, also of words without a row.

    With n-grams, a word without a row has the mean of their vectors, of its spelling in the text;
    with --case=fold, in lower case.

    Args:
        rows: The row of each word, or None; by default that of its most frequent spelling.

    Returns:
        Unit vectors (N, D) float32, zero for an unknown word, and whether each word is known, (N,).
    """
    if rows is None:
        rows = [next(iter(find_rows(lexicon, word)), None) for word in words]
    known_N = np.array([row is not None for row in rows], bool)
    units_ND = np.zeros((len(words), lexicon.matrix.shape[1]), np.float32)
    units_ND[known_N] = unit_rows(lexicon, np.array([r for r in rows if r is not None], np.int64))
    unseen = np.flatnonzero(~known_N)
    if lexicon.ngrams is None or not len(unseen):
        return units_ND, known_N
    spellings = spell([words[index] for index in unseen], lexicon.form, lexicon.case)
    vectors_ND = compose_unseen(spellings, lexicon.ngrams)
    lengths_N = np.linalg.norm(vectors_ND.astype(np.float64), axis=1)
    known_N[unseen] = usable = np.isfinite(lengths_N) & (lengths_N > 0)
    units_ND[unseen[usable]] = vectors_ND[usable] / lengths_N[usable, np.newaxis]
    return units_ND, known_N


def spell(words: Sequence[str], form: str, case: str = "fold") -> list[str]:
    """Return the spellings whose n-grams give words without a row their vectors.

    Args:
        form: The form of the words of the text, as `WordVectors.form`.
        case: See `make_lexicon`.
    """
    spellings = [*normalize(words, form)]
    if case == "fold" and form != FOLDED:
        spellings = [spelling.lower() for spelling in spellings]
    return spellings


def nearest_rows(
    lexicon: Lexicon, queries_ND: np.ndarray, k: int, excluded: Sequence[Sequence[int]]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the k rows of highest cosine for each query, best first, in bounded memory.

    Of rows with equal cosines the most frequent word comes first.

    Args:
        queries_ND: Vectors, float32, of any length but zero.
        excluded: For each query, the rows that are left out.

    Returns:
        Rows (N, k) int64 and cosines (N, k) float32. Where fewer than k rows are left, the
        remainder is row -1 with cosine -inf.
    """
    count = len(queries_ND)
    queries_ND = queries_ND / np.linalg.norm(queries_ND, axis=1, keepdims=True)
    excluded_query = np.repeat(np.arange(count), [len(rows) for rows in excluded])
    excluded_row = np.array([row for rows in excluded for row in rows], np.int64)
    best_rows = np.full((count, k), -1, np.int64)
    best_cosines = np.full((count, k), -np.inf, np.float32)
    words = len(lexicon.words)
    with show_progress("nearest words", words, " words") as show:
        for low in range(0, words, _ROWS_PER_BLOCK):
            show(low)
            unit_RD = unit_rows(lexicon, slice(low, low + _ROWS_PER_BLOCK))
            in_block = (excluded_row >= low) & (excluded_row < low + len(unit_RD))
            block_query, block_row = excluded_query[in_block], excluded_row[in_block] - low
            for start in range(0, count, _QUERIES_PER_BLOCK):
                block = slice(start, start + _QUERIES_PER_BLOCK)
                cosines = queries_ND[block] @ unit_RD.T
                bounds = slice(*np.searchsorted(block_query, [start, start + len(cosines)]))
                cosines[block_query[bounds] - start, block_row[bounds]] = -np.inf
                _merge(best_rows[block], best_cosines[block], cosines, low)
    return best_rows, best_cosines


def _merge(best_rows: np.ndarray, best_cosines: np.ndarray, cosines: np.ndarray, low: int) -> None:
    """Merge a block of cosines (N, R), of rows from `low`, into the best k of each query, in place.

    A cosine of -inf means no row: its row becomes -1.
    """
    k = best_rows.shape[1]
    columns = _best_columns(cosines, k)
    values = np.take_along_axis(cosines, columns, 1)
    rows = np.where(np.isneginf(values), -1, columns + low)
    # Earlier rows come first and the sort is stable, so a tie goes to the more frequent word.
    rows = np.concatenate([best_rows, rows], 1)
    values = np.concatenate([best_cosines, values], 1)
    order = _best_columns(values, k)
    best_rows[:] = np.take_along_axis(rows, order, 1)
    best_cosines[:] = np.take_along_axis(values, order, 1)


def _best_columns(values: np.ndarray, k: int) -> np.ndarray:
    """Return the columns of the k largest values of each row, the leftmost of equal ones first."""
    if k == 1:  # a single pass instead of a sort: this is the whole cost of the analogies
        return values.argmax(1)[:, None]
    return np.argsort(-values, axis=1, kind="stable")[:, :k]


def nearest(lexicon: Lexicon, words: Sequence[str], k: int = 10) -> list[Neighbors]:
    """Return the k nearest words of each word by cosine, best first, without the word itself.

    Other spellings of the word stay in. A vocabulary of k words or fewer gives fewer.

    Raises:
        UsageError: A word is unknown; the message names similar words.
    """
    return search(lexicon, *_find(lexicon, words), k)


def solve(lexicon: Lexicon, expression: str, k: int = 10) -> Neighbors:
    """Return the k words nearest to a sum of words by cosine, best first, but no word of the sum.

    Args:
        expression: Words joined by ` + ` and ` - `, such as `paris - france + italy`. The spaces
            are needed, as a word may contain a hyphen. Unit vectors are added.

    Raises:
        UsageError: A word is unknown, the expression is malformed, or the sum is zero (up to
            rounding errors).
    """
    signs, words = _parse(expression)
    units_ND, known = _find(lexicon, words)
    query_D = np.array(signs, np.float32) @ units_ND
    # Unit vectors that cancel leave rounding errors of about 1e-7.
    if np.linalg.norm(query_D) < 1e-5:
        raise UsageError(f"--analogy={expression!r}: its words cancel out; use different words")
    return search(lexicon, query_D[None], [[row for rows in known for row in rows]], k)[0]


def search(
    lexicon: Lexicon, queries_ND: np.ndarray, excluded: list[list[int]], k: int
) -> list[Neighbors]:
    """Return the k words nearest to each query by cosine, best first, without the excluded rows."""
    k = min(k, len(lexicon.words))  # any greater one would take memory
    rows, cosines = nearest_rows(lexicon, queries_ND, k, excluded)
    return [
        [(lexicon.words[row], value) for row, value in zip(*pair, strict=True) if row >= 0]
        for pair in zip(rows.tolist(), cosines.tolist(), strict=True)
    ]


def _parse(expression: str) -> tuple[list[int], list[str]]:
    """Return the signs (1 or -1) and the words of `word + word - word`.

    The first sign may be left out.

    Raises:
        UsageError: The expression has another form.
    """
    terms = expression.split()
    if terms and terms[0] not in ("+", "-"):
        terms.insert(0, "+")
    operators, words = terms[::2], terms[1::2]
    if len(operators) != len(words) or not words or not set(operators) <= {"+", "-"}:
        raise UsageError(
            f"--analogy={expression!r}: not a sum of words; write it with spaces, "
            "like 'paris - france + italy'"
        )
    return [1 if operator == "+" else -1 for operator in operators], words


def _find(lexicon: Lexicon, words: Sequence[str]) -> tuple[np.ndarray, list[list[int]]]:
    """Return the vectors of words, divided by their length, (N, D) float32, and a row or none each.

    The row is of this spelling, or else of the most frequent spelling of the word. A phrase may be
    written with spaces.

    Raises:
        UsageError: A word has no vector.
    """
    if unknown := find_unknown(lexicon, words):
        raise UsageError(explain_unknown(lexicon, unknown[0]))
    found: list[int | None] = []
    for word, spelling in zip(words, normalize(words, lexicon.form), strict=True):
        rows = find_rows(lexicon, word)
        same = (row for row in rows if lexicon.words[row] == spelling)
        found.append(next(same, rows[0] if rows else None))
    return unit_vectors(lexicon, words, found)[0], [[row] * (row is not None) for row in found]


def find_unknown(lexicon: Lexicon, words: Sequence[str]) -> list[str]:
    """Return those words, each once, that have neither a row nor n-grams with a vector."""
    unknown = [word for word in dict.fromkeys(words) if not find_rows(lexicon, word)]
    unseen = [word for word in unknown if not _NO_WORD.search(word)]
    is_known = dict(zip(unseen, unit_vectors(lexicon, unseen)[1].tolist(), strict=True))
    return [word for word in unknown if not is_known.get(word)]


def explain_unknown(lexicon: Lexicon, word: str) -> str:
    """Return a message for a word without a vector, with up to three others to ask for.

    Args:
        word: One of `find_unknown`.
    """
    folded, *zeros = normalize([word, *lexicon.zeros], FOLDED)
    if folded in zeros:
        return f"{word!r} has a zero vector, to which no word is near; use another word"
    keys, (part,) = normalize(lexicon.words, FOLDED), normalize([join_words(word)], FOLDED)
    longer = [
        other
        for other, key in zip(lexicon.words, keys, strict=True)
        if f"{JOINT}{part}{JOINT}" in f"{JOINT}{key}{JOINT}" and len(key) > len(part)
    ]
    if part and longer:
        names = " or ".join(map(repr, longer[:3]))
        return f"{word!r} is no word here, only a part of others; use {names}"
    close = close_names(word, lexicon.words)
    if len(word.split()) > 1 and not close:
        return f"{word[:60]!r} is no phrase here; give its words one by one"
    if _NO_WORD.search(word) and not close:
        return f"{word[:60]!r} is no word: give one without white space, in Unicode"
    # Spellings that differ in case alone come first; difflib would not find them.
    similar = [w for w, key in zip(lexicon.words, keys, strict=True) if key == folded][:3]
    similar += close
    names = " or ".join(map(repr, dict.fromkeys(similar[:3])))
    remedy = f"did you mean {names}?" if similar else ""
    return f"{word!r}: unknown word; {remedy or 'use a word of the vocabulary'}"
