"""Refuse vectors of a file that have NaN or infinite numbers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from ..errors import UsageError

_ROWS = 256  # that are checked at a time: numpy takes as long for one row as for several


def check_finite(
    path: str | Path, tokens: Sequence[str], matrix_ND: np.ndarray, first: int = 1
) -> None:
    """Raise UsageError if a number of some vectors is not finite.

    Args:
        path: The file of the vectors, for the message.
        tokens: The word of each vector.
        matrix_ND: The vectors, (N, D).
        first: The number of the first row in the file, from 1.
    """
    for start in range(0, len(tokens), _ROWS):
        is_finite_M = np.isfinite(matrix_ND[start : start + _ROWS]).all(axis=1)
        if not is_finite_M.all():
            row = start + int(is_finite_M.argmin())
            number = matrix_ND[row][~np.isfinite(matrix_ND[row])][0]
            raise UsageError(
                f"{path}, row {first + row}: the vector of {tokens[row][:60]!r} has {number}, "
                "which is not a finite number; correct or remove the row"
            )


def check_rows(path: str | Path, rows: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    """Yield the rows of a file of vectors, after a check of several at a time.

    Args:
        path: The file, for the message.
        rows: Each word, and its numbers as bytes of little-endian float32.

    Raises:
        UsageError: A number is not finite. Earlier rows may have been given.
    """
    rows, first = iter(rows), 1
    while part := list(itertools.islice(rows, _ROWS)):
        numbers = np.frombuffer(b"".join(row for _, row in part), "<f4")
        check_finite(path, [word for word, _ in part], numbers.reshape(len(part), -1), first)
        yield from part
        first += len(part)
