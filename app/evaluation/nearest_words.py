"""Nearest words by cosine, and sums of words such as `paris - france + italy`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..errors import UsageError
from .lexicon import Lexicon, unit_vectors
from .search import nearest_rows

# The number of most frequent words that are compared with an unknown word, which takes 0.3 s.
_SUGGESTIONS_AMONG = 50_000
_NO_WORD = re.compile(r"\s|[\ud800-\udfff]")  # white space, or half of a surrogate pair


class Neighbor(NamedTuple):
    """A word and its cosine with the query (-1 to 1)."""

    word: str
    cosine: float


def nearest(lexicon: Lexicon, words: Sequence[str], k: int = 10) -> list[list[Neighbor]]:
    """Return the k nearest words of each word by cosine, best first, without the word itself.

    Other spellings of the word stay in. A vocabulary of k words or fewer gives fewer.

    Args:
        lexicon: The words to search.
        words: N words.
        k: The number of neighbors of each.

    Returns:
        A list of neighbors for each word.

    Raises:
        UsageError: A word is unknown (the message names similar words), or k is below 1.
    """
    return _search(lexicon, _unit_vectors(lexicon, words), k, _known_rows(lexicon, words))


def solve(lexicon: Lexicon, expression: str, k: int = 10) -> list[Neighbor]:
    """Return the k words nearest to a sum of words by cosine, best first, but no word of the sum.

    Args:
        lexicon: The words to search.
        expression: Words joined by ` + ` and ` - `, such as `paris - france + italy`. The spaces
            are needed, as a word may contain a hyphen. Unit vectors are added.
        k: The number of neighbors.

    Returns:
        The neighbors of the sum, fewer than k in a small vocabulary.

    Raises:
        UsageError: A word is unknown, the expression is malformed, the sum is zero (up to rounding
            errors), or k is below 1.
    """
    signs, words = _parse(expression)
    query_D = np.array(signs, np.float32) @ _unit_vectors(lexicon, words)
    # Unit vectors that cancel leave rounding errors of about 1e-7.
    if np.linalg.norm(query_D) < 1e-5:
        raise UsageError(f"--analogy={expression!r}: its words cancel out; use different words")
    excluded = [row for rows in _known_rows(lexicon, words) for row in rows]
    return _search(lexicon, query_D[None], k, [excluded])[0]


def _search(
    lexicon: Lexicon, queries_ND: np.ndarray, k: int, excluded: list[list[int]]
) -> list[list[Neighbor]]:
    """Return the k nearest words of each query, without the excluded rows.

    Raises:
        UsageError: k is below 1.
    """
    if k < 1:
        raise UsageError(f"--k={k}: ask for at least one neighbor")
    rows, cosines = nearest_rows(lexicon, queries_ND, k, excluded)
    return [
        [Neighbor(lexicon.words[row], value) for row, value in zip(*pair, strict=True) if row >= 0]
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


def _unit_vectors(lexicon: Lexicon, words: Sequence[str]) -> np.ndarray:
    """Return the vectors of words, divided by their length, (N, D) float32.

    Raises:
        UsageError: A word is unknown and has no n-grams.
    """
    units_ND, known_N = unit_vectors(lexicon, words, _row)
    for index in np.flatnonzero(~known_N):
        _refuse(lexicon, words[index])
    return units_ND


def _known_rows(lexicon: Lexicon, words: Sequence[str]) -> list[list[int]]:
    """Return a list of the row of each word; an empty list for a word without a row."""
    rows = (_row(lexicon, word) for word in words)
    return [[] if row is None else [row] for row in rows]


def _row(lexicon: Lexicon, word: str) -> int | None:
    """Return the row of this spelling, or else of the most frequent spelling of the word.

    Return None for a word without a row.

    Raises:
        UsageError: It has no row and is no word: it is empty, has white space, or is not Unicode.
    """
    rows = lexicon.rows.get(lexicon.fold(word))
    if rows:
        return next((row for row in rows if lexicon.words[row] == word), rows[0])
    if not word or _NO_WORD.search(word):
        raise UsageError(f"{word[:60]!r} is no word: give one without white space, in Unicode")
    return None


def _refuse(lexicon: Lexicon, word: str) -> None:
    """Raise UsageError for an unknown word; the message names up to three similar words."""
    # Spellings that differ in case alone come first; difflib would not find them.
    similar = [w for w in lexicon.words if w.lower() == word.lower()][:3]
    similar += difflib.get_close_matches(word, lexicon.words[:_SUGGESTIONS_AMONG], n=3)
    names = " or ".join(map(repr, dict.fromkeys(similar[:3])))
    remedy = f"did you mean {names}?" if similar else ""
    raise UsageError(f"{word!r}: unknown word; {remedy or 'use a word of the vocabulary'}")
