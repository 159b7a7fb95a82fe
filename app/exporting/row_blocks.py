"""Choose rows of word vectors, and read them in blocks, so that a matrix is never copied whole."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from absl import logging

from ..types import WordVectors

_BLOCK_ROWS = 4_096


def read_blocks(vectors: WordVectors, rows_N: np.ndarray | None = None) -> Iterator[np.ndarray]:
    """Yield vectors in order, little-endian float32, some thousand rows at a time, (M, D) each.

    Args:
        rows_N: The rows to read, integers; all by default.
    """
    count = len(vectors.tokens) if rows_N is None else len(rows_N)
    for low in range(0, count, _BLOCK_ROWS):
        part = slice(low, low + _BLOCK_ROWS)
        yield np.ascontiguousarray(vectors.matrix[part if rows_N is None else rows_N[part]], "<f4")


def unique_rows(vectors: WordVectors) -> np.ndarray:
    """Return the row numbers without those that repeat an earlier word, (N,) int64, rising.

    A warning names the number of rows that are left out.
    """
    rows: dict[str, int] = {}
    for row, token in enumerate(vectors.tokens):
        rows.setdefault(token, row)
    repeated = len(vectors.tokens) - len(rows)
    if repeated:
        logging.warning("%d row(s) that repeat an earlier word are left out", repeated)
    return np.fromiter(rows.values(), np.int64, len(rows))


def finite_rows(vectors: WordVectors, rows_N: np.ndarray) -> np.ndarray:
    """Return those of some row numbers whose vectors have finite numbers only, in order.

    A warning names the number of rows that are left out.
    """
    parts = [np.isfinite(block).all(axis=1) for block in read_blocks(vectors, rows_N)]
    is_finite_N = np.concatenate([np.empty(0, bool), *parts])
    if not is_finite_N.all():
        logging.warning("%d words have no finite vector: left out", (~is_finite_N).sum())
    return rows_N[is_finite_N]
