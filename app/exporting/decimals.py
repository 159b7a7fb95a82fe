"""Write float32 numbers as text, many at a time.

Python takes 0.2 microseconds to format a number with nine digits, which is half a minute for the
vectors of 500,000 words. Here numpy computes the digits of a whole matrix.

Each number gets 20 bytes: `" -0."`, zeros and the first digit, `"."`, four digits, four digits. A
small number has no zeros: `" -"`, the first digit with the point, four digits, four digits, and the
exponent. Tables have the bytes of each of these five parts; a NUL byte stands for a character that
is left out, and is removed at the end.
"""

from __future__ import annotations

import numpy as np

# Nine significant digits keep every float32 exactly (IEEE 754-2019, 5.12.2).
_DIGITS = 9
_LEAST, _MOST = 1.00001e-4, 10.0  # of the numbers that numpy formats
# By the zeros before the first digit that is not 0, with the zero before the point.
_ZEROS = range(5)
_SCALES = 10.0 ** (np.array(_ZEROS) + _DIGITS - 1)
_BLOCK = 128  # rows at a time, whose characters fit in the processor's cache
_PARTS = 5
# Numbers below 1e-4 are written with an exponent; here -5 to -8. Their products by powers of 5 are
# exact in 63 bits, but not in float64.
_SMALLEST, _MOST_SMALL = 1.00001e-8, np.float32(1e-4)  # the latter rounds down
_EXPONENTS = np.arange(5, 9)
_POWERS_OF_5 = 5 ** (_EXPONENTS + _DIGITS - 1)
_MANTISSA_BITS = 24  # of float32


def _table(texts: list[str]) -> np.ndarray:
    """Return texts of at most four characters, with NUL after them, each as one number."""
    return np.array(texts, "S4").view(np.uint32)


_STARTS = _table([" ", " -", " 0.", " -0."])  # by sign, and by whether there are zeros
_FIRST = _table([f"{'0' * (zeros - 1)}{digit}" for zeros in _ZEROS for digit in range(10)])
_POINTS = _table([".", "", "", "", ""])  # by zeros: after the first digit, or before the zeros
_FOUR = _table([f"{number:04d}" for number in range(10_000)])
_LAST = _table([f"{number:04d}".rstrip("0") for number in range(10_000)])
_FIRST_WITH_POINT = _table([f"{digit}." for digit in range(10)])
_FIRST_ALONE = _table([f"{digit}" for digit in range(10)])
_ENDS = _table([f"e-{exponent:02d}" for exponent in _EXPONENTS])


def format_rows(rows_ND: np.ndarray) -> list[bytes]:
    """Return each row as text: its numbers as Python formats them by ` %.9g`.

    Args:
        rows_ND: The rows, float32.
    """
    blocks = (rows_ND[start : start + _BLOCK] for start in range(0, len(rows_ND), _BLOCK))
    return [
        row_M5.tobytes().translate(None, b"\0")
        for block_ND in blocks
        for row_M5 in _format_numbers(block_ND.ravel()).reshape(len(block_ND), -1)
    ]


def _format_numbers(numbers_M: np.ndarray) -> np.ndarray:
    """Return the text of each number in five parts of four bytes, (M, 5) uint32."""
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
    first_M, middle_M, last_M = _split(digits_M)
    text_M5 = np.empty((len(numbers_M), _PARTS), np.uint32)
    text_M5[:, 0] = _STARTS[np.signbit(numbers_M).view(np.int8) + 2 * (zeros_M > 0)]
    text_M5[:, 1] = _FIRST[10 * zeros_M + first_M]
    text_M5[:, 2] = _POINTS[zeros_M]
    text_M5[:, 3], text_M5[:, 4] = _FOUR[middle_M], _LAST[last_M]
    (short_K,) = np.nonzero(last_M == 0)
    text_M5[short_K, 3] = _LAST[middle_M[short_K]]
    text_M5[short_K[middle_M[short_K] == 0], 2] = 0  # no point after a whole number
    if len(unusual_K):
        text_M5[unusual_K] = _format_unusual(numbers_M[unusual_K])
    return text_M5


def _format_unusual(numbers_K: np.ndarray) -> np.ndarray:
    """Return what `_format_numbers` does, for numbers that need an exponent or are not finite."""
    sizes_K = np.abs(numbers_K)
    is_small_K = (sizes_K >= _SMALLEST) & (sizes_K <= _MOST_SMALL)
    texts = [b" %.*g" % (_DIGITS, number) for number in numbers_K[~is_small_K].tolist()]
    text_K5 = np.empty((len(numbers_K), _PARTS), np.uint32)
    text_K5[~is_small_K] = np.array(texts, f"S{4 * _PARTS}").view(np.uint32).reshape(-1, _PARTS)
    text_K5[is_small_K] = _format_small(numbers_K[is_small_K])
    return text_K5


def _format_small(numbers_K: np.ndarray) -> np.ndarray:
    """Return what `_format_numbers` does, for sizes from `_SMALLEST` to below 1e-4."""
    fractions_K, exponents_K = np.frexp(np.abs(numbers_K))
    mantissas_K = np.ldexp(fractions_K, _MANTISSA_BITS).astype(np.int64)
    sizes_K = np.abs(numbers_K).astype(np.float64)
    order_K = sum((sizes_K < limit).view(np.int8) for limit in (1e-5, 1e-6, 1e-7))
    # size * 10 ** places = mantissa * 5 ** places / 2 ** halvings, rounded half to even.
    places_K = _EXPONENTS[order_K] + _DIGITS - 1
    halvings_K = _MANTISSA_BITS - exponents_K.astype(np.int64) - places_K
    products_K = mantissas_K * _POWERS_OF_5[order_K]
    digits_K = products_K >> halvings_K
    twice_K = 2 * (products_K - (digits_K << halvings_K)) - (1 << halvings_K)
    digits_K += (twice_K > 0) | ((twice_K == 0) & (digits_K % 2 == 1))
    first_K, middle_K, last_K = _split(digits_K)
    text_K5 = np.empty((len(numbers_K), _PARTS), np.uint32)
    text_K5[:, 0] = _STARTS[np.signbit(numbers_K).view(np.int8)]
    text_K5[:, 1] = _FIRST_WITH_POINT[first_K]
    text_K5[:, 2], text_K5[:, 3] = _FOUR[middle_K], _LAST[last_K]
    (short_J,) = np.nonzero(last_K == 0)
    text_K5[short_J, 2] = _LAST[middle_K[short_J]]
    whole_J = short_J[middle_K[short_J] == 0]
    text_K5[whole_J, 1] = _FIRST_ALONE[first_K[whole_J]]
    text_K5[:, 4] = _ENDS[order_K]
    return text_K5


def _split(digits_M: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the first of nine digits, the next four and the last four, as numbers."""
    # Not np.divmod, which takes several times as long.
    first_M, upper_M = digits_M // 10**8, digits_M // 10**4
    return first_M, upper_M - 10**4 * first_M, digits_M - 10**4 * upper_M
