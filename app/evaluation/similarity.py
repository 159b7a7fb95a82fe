"""Score word vectors by the agreement of cosines with human judgements of word pairs.

The measure is Spearman's rank correlation, as in Finkelstein et al. 2002 (WordSim-353) and Hill et
al. 2015 (SimLex-999). Equal values share the mean of their ranks.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..errors import UsageError
from .benchmark import Score, count_unknown, numbered_lines
from .lexicon import Lexicon, unit_vectors

_FORMAT = "word pairs: one `word word score` a line, separated by tabs, commas or spaces"
_MEASURE = "Spearman's rho of cosine"


class Pair(NamedTuple):
    """Two words, and their similarity as judged by people: on any scale, higher is more similar."""

    first: str
    second: str
    judgement: float


def read_pairs(path: str | Path) -> list[Pair]:
    """Read word pairs from a file of columns, separated by tabs, commas or spaces.

    Columns after the third, `#` comments and empty lines are ignored, and so is a first line whose
    third column is not a number (a header).

    Args:
        path: The file.

    Returns:
        The pairs, in the order of the file.

    Raises:
        UsageError: The file cannot be read, a line is malformed, or there is no pair.
    """
    pairs: list[Pair] = []
    header = False
    for number, text in numbered_lines(path, _FORMAT):
        fields = _fields(text)
        try:
            judgement = float(fields[2])
        except (IndexError, ValueError):
            if not pairs and not header and len(fields) > 2:
                header = True
                continue
            judgement = math.nan
        if not math.isfinite(judgement) or not fields[0] or not fields[1]:
            raise UsageError(f"{path}, line {number}: {text[:60]!r} is no pair; wanted {_FORMAT}")
        pairs.append(Pair(fields[0], fields[1], judgement))
    if not pairs:
        raise UsageError(f"{path}: holds no pair; wanted {_FORMAT}")
    return pairs


def score(lexicon: Lexicon, path: str | Path, name: str) -> Score:
    """Return Spearman's rho between judgements of word pairs and the cosines of their words.

    Args:
        lexicon: The words and their vectors.
        path: A file of pairs, see `read_pairs`.
        name: The name of the score.

    Returns:
        The score over the pairs without an unknown word. Its value is None where rho is undefined:
        there are fewer than two such pairs, or all cosines or all judgements are equal.

    Raises:
        UsageError: See `read_pairs`.
    """
    pairs = read_pairs(path)
    words = [word for pair in pairs for word in (pair.first, pair.second)]
    units_ND, known = unit_vectors(lexicon, words)
    usable_N = known.reshape(-1, 2).all(axis=1)
    judgements = np.array([pair.judgement for pair in pairs])[usable_N]
    first_ND, second_ND = units_ND[::2][usable_N], units_ND[1::2][usable_N]
    rho = spearman(judgements, np.einsum("nd,nd->n", first_ND, second_ND))
    used, note = int(usable_N.sum()), ""
    if rho is None:
        note = "fewer than two known pairs" if used < 2 else "all values are equal"
    unknown = "pairs with an unknown word skipped"
    if lexicon.ngrams is not None:
        unknown = "unknown words have the vectors of their n-grams"
    line = f"{_MEASURE}; {unknown}; {lexicon.protocol}"
    counted = count_unknown(dict(zip(words, known.tolist(), strict=True)))
    return Score(name, "spearman", rho, used, len(pairs) - used, line, note, words=counted)


def spearman(x: np.ndarray, y: np.ndarray) -> float | None:
    """Return Spearman's rank correlation of two arrays.

    Args:
        x: (N,) numbers.
        y: (N,) numbers.

    Returns:
        The correlation, or None where it is undefined: N is below 2, or all numbers of an array are
        equal.
    """
    if len(x) < 2:
        return None
    x, y = (ranks - ranks.mean() for ranks in (_ranks(x), _ranks(y)))
    scale = math.sqrt((x @ x) * (y @ y))
    return float(x @ y) / scale if scale else None


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return the rank of each value from 1, float64; equal values share the mean rank."""
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(sizes)
    return (last - (sizes - 1) / 2)[group.reshape(-1)]


def _fields(text: str) -> list[str]:
    """Return the columns of a line, separated by tabs, else by commas, else by spaces."""
    separator = next((mark for mark in "\t," if mark in text), None)
    return [field.strip() for field in text.split(separator)]
