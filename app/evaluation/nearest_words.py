"""Nearest words by cosine, and sums of words such as `paris - france + italy`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..errors import UsageError
from ..text.unicode_rules import FOLDED, normalize
from ..text.vocabulary import JOINT, join_words
from .lexicon import Lexicon, find_rows, nearest_rows, unit_vectors

_NO_WORD = re.compile(r"^$|\s|[\ud800-\udfff]")  # nothing, white space, half a surrogate pair


class Neighbor(NamedTuple):
    """A word and its cosine with the query (-1 to 1)."""

    word: str
    cosine: float


def nearest(lexicon: Lexicon, words: Sequence[str], k: int = 10) -> list[list[Neighbor]]:
    """Return the k nearest words of each word by cosine, best first, without the word itself.

    Other spellings of the word stay in. A vocabulary of k words or fewer gives fewer.

    Raises:
        UsageError: A word is unknown (the message names similar words), or k is below 1.
    """
    return _search(lexicon, *_find(lexicon, words), k)


def solve(lexicon: Lexicon, expression: str, k: int = 10) -> list[Neighbor]:
    """Return the k words nearest to a sum of words by cosine, best first, but no word of the sum.

    Args:
        expression: Words joined by ` + ` and ` - `, such as `paris - france + italy`. The spaces
            are needed, as a word may contain a hyphen. Unit vectors are added.

    Raises:
        UsageError: A word is unknown, the expression is malformed, the sum is zero (up to rounding
            errors), or k is below 1.
    """
    signs, words = _parse(expression)
    units_ND, known = _find(lexicon, words)
    query_D = np.array(signs, np.float32) @ units_ND
    # Unit vectors that cancel leave rounding errors of about 1e-7.
    if np.linalg.norm(query_D) < 1e-5:
        raise UsageError(f"--analogy={expression!r}: its words cancel out; use different words")
    return _search(lexicon, query_D[None], [[row for rows in known for row in rows]], k)[0]


def _search(
    lexicon: Lexicon, queries_ND: np.ndarray, excluded: list[list[int]], k: int
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
    from ..text.vocabulary import close_names  # it imports TensorFlow, which takes seconds

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
    if _NO_WORD.search(word):
        return f"{word[:60]!r} is no word: give one without white space, in Unicode"
    # Spellings that differ in case alone come first; difflib would not find them.
    similar = [w for w, key in zip(lexicon.words, keys, strict=True) if key == folded][:3]
    similar += close_names(word, lexicon.words)
    names = " or ".join(map(repr, dict.fromkeys(similar[:3])))
    remedy = f"did you mean {names}?" if similar else ""
    return f"{word!r}: unknown word; {remedy or 'use a word of the vocabulary'}"
