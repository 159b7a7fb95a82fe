"""Write the formats of word2vec.c (https://code.google.com/archive/p/word2vec/) and gensim.

The first line is `V D`. Each row has the UTF-8 bytes of a word, a space, and D numbers. In text the
numbers are decimals, and a newline ends the row. In binary they are little-endian float32;
word2vec.c writes a newline after each row, gensim does not. GloVe's text is the same without the
first line.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from ..errors import UsageError
from ..system.files import opener, replacing
from ..types import WordVectors

_ROWS_PER_WRITE = 512
# Readers end a word at the first of these characters.
_SPACES = re.compile(r"[ \t\n\v\f\r]")
# Nine significant digits keep every float32 exactly (IEEE 754-2019, 5.12.2).
_DIGITS = 9
_LEAST, _MOST = 1.00001e-4, 10.0  # of the numbers that numpy formats; Python formats the others
# By the zeros before the first digit that is not 0, with the zero before the point.
_ZEROS = range(5)
_SCALES = 10.0 ** (np.array(_ZEROS) + _DIGITS - 1)
_BLOCK = 128  # rows at a time, whose characters fit in the processor's cache
_PARTS = 5


def _table(texts: list[str]) -> np.ndarray:
    """Return texts of at most four characters, with NUL after them, each as one number."""
    return np.array(texts, "S4").view(np.uint32)


_STARTS = _table([" ", " -", " 0.", " -0."])  # by sign, and by whether there are zeros
_FIRST = _table([f"{'0' * (zeros - 1)}{digit}" for zeros in _ZEROS for digit in range(10)])
_POINTS = _table([".", "", "", "", ""])  # by zeros: after the first digit, or before the zeros
_FOUR = _table([f"{number:04d}" for number in range(10_000)])
_LAST = _table([f"{number:04d}".rstrip("0") for number in range(10_000)])


def write(vectors: WordVectors, path: str | Path, binary: bool = False) -> None:
    """Write a word2vec file, which replaces an earlier one. Every float32 number is kept exactly.

    Args:
        path: The file. A name that ends in .gz, .bz2 or .xz is compressed.

    Raises:
        UsageError: A word is empty or has white space. Nothing is written.
        RunError: The file cannot be written.
    """
    for row, token in enumerate(vectors.tokens):
        if not token or _SPACES.search(token):
            raise UsageError(
                f"--format=word2vec: word {token!r} of row {row} is empty or holds white space, "
                "which ends a word in this format; use --format=saved_model or rename the word"
            )
    matrix = np.asarray(vectors.matrix, "<f4")
    make_rows = _binary_rows if binary else _text_rows
    with replacing(path) as temporary, opener(path)(temporary, "wb") as file:
        file.write(b"%d %d\n" % matrix.shape)
        for low in range(0, len(vectors.tokens), _ROWS_PER_WRITE):
            rows = slice(low, low + _ROWS_PER_WRITE)
            file.write(make_rows(vectors.tokens[rows], matrix[rows]))


def _text_rows(tokens: list[str], matrix: np.ndarray) -> bytes:
    """Return lines of a word and its numbers, as UTF-8."""
    rows = zip(tokens, format_rows(matrix), strict=True)
    return b"".join(b"%b%b\n" % (token.encode("utf-8", "replace"), row) for token, row in rows)


def _binary_rows(tokens: list[str], matrix: np.ndarray) -> bytes:
    """Return rows of a word, a space, little-endian float32 numbers and a newline."""
    rows = zip(tokens, matrix, strict=True)
    return b"".join(b"%b %b\n" % (t.encode("utf-8", "replace"), row.tobytes()) for t, row in rows)


def format_rows(rows_ND: np.ndarray) -> list[bytes]:
    """Return each row of float32 numbers as text, as Python formats them by ` %.9g`.

    Python takes 0.2 microseconds to format a number with nine digits, which is half a minute for
    the vectors of 500,000 words. Here numpy computes the digits of a whole matrix.
    """
    blocks = (rows_ND[start : start + _BLOCK] for start in range(0, len(rows_ND), _BLOCK))
    return [
        row_M5.tobytes().translate(None, b"\0")
        for block_ND in blocks
        for row_M5 in _format_numbers(block_ND.ravel()).reshape(len(block_ND), -1)
    ]


def _format_numbers(numbers_M: np.ndarray) -> np.ndarray:
    """Return the text of each number in five parts of four bytes, (M, 5) uint32.

    They are `" -0."`, zeros and the first digit, `"."`, four digits, four digits. Tables have the
    bytes of each part; a NUL byte stands for a character that is left out, and is removed later.
    """
    sizes_M = np.abs(numbers_M)
    (unusual_K,) = np.nonzero(~((sizes_M >= _LEAST) & (sizes_M < _MOST)))
    sizes_M[unusual_K] = 1
    sizes_M = sizes_M.astype(np.float64)
    zeros_M = sum((sizes_M < limit).view(np.int8) for limit in (1.0, 0.1, 0.01, 0.001))
    # All products are exact: float32 has 24 bits, and 5 ** 12 has 28. So ties round as in Python.
    digits_M = np.rint(sizes_M * _SCALES[zeros_M]).astype(np.int32)
    # Rounding may reach the next power of ten.
    (over_K,) = np.nonzero(digits_M == 10**_DIGITS)
    digits_M[over_K] //= 10
    zeros_M[over_K] -= 1
    # Not np.divmod, which takes several times as long.
    first_M, upper_M = digits_M // 10**8, digits_M // 10**4
    middle_M, last_M = upper_M - 10**4 * first_M, digits_M - 10**4 * upper_M
    text_M5 = np.empty((len(numbers_M), _PARTS), np.uint32)
    text_M5[:, 0] = _STARTS[np.signbit(numbers_M).view(np.int8) + 2 * (zeros_M > 0)]
    text_M5[:, 1] = _FIRST[10 * zeros_M + first_M]
    text_M5[:, 2] = _POINTS[zeros_M]
    text_M5[:, 3], text_M5[:, 4] = _FOUR[middle_M], _LAST[last_M]
    (short_K,) = np.nonzero(last_M == 0)
    text_M5[short_K, 3] = _LAST[middle_M[short_K]]
    text_M5[short_K[middle_M[short_K] == 0], 2] = 0  # no point after a whole number
    if len(unusual_K):
        texts = [b" %.*g" % (_DIGITS, number) for number in numbers_M[unusual_K].tolist()]
        text_M5[unusual_K] = np.array(texts, f"S{4 * _PARTS}").view(np.uint32).reshape(-1, _PARTS)
    return text_M5
