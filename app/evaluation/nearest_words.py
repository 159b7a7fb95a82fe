"""Nearest words by cosine, and sums of words such as `paris - france + italy`."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..errors import UsageError
from .lexicon import CASES, Lexicon, unit_rows
from .search import nearest_rows

# Spellings are compared one by one, 0.3 s for these: look where typing errors most likely lead.
_SUGGESTIONS_AMONG = 50_000


class Neighbour(NamedTuple):
    """A word and its cosine (-1 to 1)."""

    word: str
    cosine: float


def nearest(lexicon: Lexicon, words: Sequence[str], k: int = 10) -> list[list[Neighbour]]:
    """The k nearest words of each of `words`, best first, the word itself left out.

    UsageError for an unknown word, naming the closest spellings.
    """
    rows = np.array([_row(lexicon, word) for word in words], np.int64)
    return _search(lexicon, unit_rows(lexicon, rows), k, rows[:, None].tolist())


def solve(lexicon: Lexicon, expression: str, k: int = 10) -> list[Neighbour]:
    """The k words nearest to a signed sum of unit vectors, best first, its own words left out.

    expression: words joined by `+` and `-`, with spaces around both since words may hold a hyphen:
    `paris - france + italy`. UsageError for an unknown word, another form, or a sum of zero.
    """
    signs, words = _parse(expression)
    rows = np.array([_row(lexicon, word) for word in words], np.int64)
    query_D = np.array(signs, np.float32) @ unit_rows(lexicon, rows)
    # Unit vectors that cancel leave rounding errors of about 1e-7.
    if np.linalg.norm(query_D) < 1e-5:
        raise UsageError(f"--analogy={expression!r}: its words cancel out; use different words")
    return _search(lexicon, query_D[None], k, [rows.tolist()])[0]


def _search(
    lexicon: Lexicon, queries_ND: np.ndarray, k: int, excluded: list[list[int]]
) -> list[list[Neighbour]]:
    if k < 1:
        raise UsageError(f"--k={k}: ask for at least one neighbour")
    rows, cosines = nearest_rows(lexicon, queries_ND, k, excluded)
    return [
        [Neighbour(lexicon.words[row], value) for row, value in zip(*pair, strict=True) if row >= 0]
        for pair in zip(rows.tolist(), cosines.tolist(), strict=True)
    ]


def _parse(expression: str) -> tuple[list[int], list[str]]:
    """Signs and words of `word + word - word`, the first sign being optional."""
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


def _row(lexicon: Lexicon, word: str) -> int:
    """Row of a word: of the spelling given if there is one, else of the most frequent."""
    rows = lexicon.rows.get(CASES[lexicon.case](word))
    if rows:
        return next((row for row in rows if lexicon.words[row] == word), rows[0])
    # Spellings that differ in case alone are the likeliest, and are none to difflib.
    likely = [w for w in lexicon.words if w.lower() == word.lower()][:3]
    likely += difflib.get_close_matches(word, lexicon.words[:_SUGGESTIONS_AMONG], n=3)
    remedy = f"did you mean {' or '.join(map(repr, dict.fromkeys(likely[:3])))}?" if likely else ""
    raise UsageError(f"{word!r}: unknown word; {remedy or 'use a word of the vocabulary'}")
