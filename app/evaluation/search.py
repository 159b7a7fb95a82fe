"""Exact search for the nearest rows of a lexicon, in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..text.meter import show_progress
from .lexicon import Lexicon, unit_rows

# One block of cosines is 8 MB, which stays in the processor's cache between product and argmax:
# 16,242 queries x 67,871 words x 100 columns took 4.4 s of processor time, against 5.3 s in blocks
# of 512 x 16,384 and 7.1 s in blocks of 256 x 8,192.
_QUERIES_PER_BLOCK = 2_048
_ROWS_PER_BLOCK = 1_024


def nearest_rows(
    lexicon: Lexicon, queries_ND: np.ndarray, k: int, excluded: Sequence[Sequence[int]]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the k rows of highest cosine for each query, best first.

    Of rows with equal cosines the most frequent word comes first.

    Args:
        lexicon: The words and their vectors.
        queries_ND: Vectors, float32, of any length but zero.
        k: The number of rows for each query.
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
    """Put the rows of a block of cosines into the best k of each query, in place.

    Of equal cosines, rows of earlier blocks and then lower rows come first. A cosine of -inf means
    no row: its row becomes -1.

    Args:
        best_rows: The best rows so far, (N, k), best first; changed.
        best_cosines: Their cosines, (N, k); changed.
        cosines: The cosines of the block, (N, R).
        low: The row of the first column of the block.
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
