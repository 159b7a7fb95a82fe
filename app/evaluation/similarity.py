"""Agreement of cosines with human judgements of word pairs.

The measure is Spearman's rank correlation, as Finkelstein et al. 2002 (WordSim-353) and Hill et al.
2015 (SimLex-999) use it; ties share the mean of their ranks.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..errors import UsageError
from .benchmark_files import numbered_lines
from .lexicon import Lexicon, first_row, protocol, unit_rows
from .scores import Score

_WANTED = "word pairs: one `word word score` a line, separated by tabs, commas or spaces"
_MEASURE = "Spearman's rho of cosine; pairs with an unknown word skipped"


class Pair(NamedTuple):
    """Two words and how similar people find them, on any scale that grows with similarity."""

    first: str
    second: str
    judgement: float


def read_pairs(path: str | Path) -> list[Pair]:
    """Word pairs of a file: tab, comma or space separated; columns after the third are ignored.

    `#` comments, empty lines and one header line are passed over. UsageError for a file that
    cannot be read, a malformed line, or no pair at all.
    """
    pairs, header = [], False
    for number, text in numbered_lines(path, _WANTED):
        fields = _fields(text)
        try:
            judgement = float(fields[2])
        except (IndexError, ValueError):
            if not pairs and not header and len(fields) > 2:
                header = True
                continue
            judgement = math.nan
        if not math.isfinite(judgement) or not fields[0] or not fields[1]:
            raise UsageError(f"{path}, line {number}: {text[:60]!r} is no pair; wanted {_WANTED}")
        pairs.append(Pair(fields[0], fields[1], judgement))
    if not pairs:
        raise UsageError(f"{path}: holds no pair; wanted {_WANTED}")
    return pairs


def score(lexicon: Lexicon, path: str | Path, name: str) -> Score:
    """Spearman's rho between the judgements of the pairs in a file and the cosines of their words.

    The value is None where rho is undefined: fewer than two known pairs, or all cosines or all
    judgements equal. UsageError as of `read_pairs`.
    """
    pairs = read_pairs(path)
    rows = [(first_row(lexicon, pair.first), first_row(lexicon, pair.second)) for pair in pairs]
    known = [None not in ends for ends in rows]
    rows_N2 = np.array([r for r, k in zip(rows, known, strict=True) if k], np.int64).reshape(-1, 2)
    judgements = np.array([p.judgement for p, k in zip(pairs, known, strict=True) if k])
    first_ND, second_ND = (unit_rows(lexicon, rows_N2[:, end]) for end in (0, 1))
    rho = spearman(judgements, np.einsum("nd,nd->n", first_ND, second_ND))
    note = ""
    if rho is None:
        note = "fewer than two known pairs" if len(rows_N2) < 2 else "all values are equal"
    skipped = len(pairs) - len(rows_N2)
    line = f"{_MEASURE}; {protocol(lexicon)}"
    return Score(name, "spearman", rho, len(rows_N2), skipped, line, note)


def spearman(x: np.ndarray, y: np.ndarray) -> float | None:
    """Rank correlation of two (N,) arrays, or None where it is undefined."""
    if len(x) < 2:
        return None
    x, y = (ranks - ranks.mean() for ranks in (_ranks(x), _ranks(y)))
    scale = math.sqrt((x @ x) * (y @ y))
    return float(x @ y) / scale if scale else None


def _ranks(values: np.ndarray) -> np.ndarray:
    """Rank of each value from 1, float64; equal values share the mean of their ranks."""
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(sizes)
    return (last - (sizes - 1) / 2)[group.reshape(-1)]


def _fields(text: str) -> list[str]:
    """Columns of a line, at the first of tab, comma and space that it holds."""
    separator = next((mark for mark in "\t," if mark in text), None)
    return [field.strip() for field in text.split(separator)]
