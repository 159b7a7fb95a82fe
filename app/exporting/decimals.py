"""Write float32 numbers as text, many at a time.

Python takes 0.2 microseconds to format a number with nine digits, which is half a minute for the
vectors of 500,000 words. Here the digits of a whole matrix are computed by numpy.
"""

from __future__ import annotations

import numpy as np

# Nine significant digits keep every float32 exactly (IEEE 754-2019, 5.12.2).
_DIGITS = 9
_LEAST, _MOST = 1.00001e-4, 10.0  # of the numbers that numpy formats here
_SCALES = 10.0 ** np.arange(_DIGITS - 1, _DIGITS + 4)  # by the zeros before the first digit
_BLOCK = 128  # rows at a time, whose characters fit in the processor's cache
# Texts of four characters, each as one number, so that they are copied at once.
_FOUR = np.array([f"{number:04d}" for number in range(10_000)], "S4").view(np.uint32)
_START, _POINT = np.frombuffer(b" -0.", np.uint32), np.frombuffer(b".   ", np.uint32)
# The places of the characters of a number: " -0." "000d" ".   " "dddd" "dddd".
_MINUS, _LEADING, _ZEROS, _FIRST_DIGIT, _INNER_POINT, _REST = 1, 2, 4, 7, 8, 12
_WIDTH = 20


def format_rows(rows_ND: np.ndarray) -> list[bytes]:
    """Return each row as text: its numbers as Python formats them by ` %.9g`.

    Args:
        rows_ND: The rows, float32.
    """
    blocks = (rows_ND[start : start + _BLOCK] for start in range(0, len(rows_ND), _BLOCK))
    return [text for block in blocks for text in _format_block(block)]


def _format_block(rows_ND: np.ndarray) -> list[bytes]:
    """Return what `format_rows` returns; rows with unusual numbers are formatted by Python."""
    sizes_ND = np.abs(rows_ND)
    is_usual_N = ((sizes_ND >= _LEAST) & (sizes_ND < _MOST)).all(axis=1)
    usual = iter(_format_usual(rows_ND[is_usual_N]) if is_usual_N.any() else ())
    line = f" %.{_DIGITS}g" * rows_ND.shape[1]
    return [
        next(usual) if is_usual else (line % tuple(row.tolist())).encode()
        for row, is_usual in zip(rows_ND, is_usual_N.tolist(), strict=True)
    ]


def _format_usual(rows_ND: np.ndarray) -> list[bytes]:
    """Return what `format_rows` returns, for sizes from `_LEAST` to below `_MOST`."""
    sizes_M = np.abs(rows_ND.astype(np.float64).ravel())
    zeros_M = sum((sizes_M < limit).astype(np.int32) for limit in (1.0, 0.1, 0.01, 0.001))
    # All products are exact: float32 has 24 bits, and 5 ** 12 has 28. So ties round as in Python.
    digits_M = np.rint(sizes_M * _SCALES[zeros_M]).astype(np.int32)
    # Rounding may reach the next power of ten.
    (over_K,) = np.nonzero(digits_M == 10**_DIGITS)
    digits_M[over_K] //= 10
    zeros_M[over_K] -= 1
    # Not np.divmod, which takes several times as long.
    first_M, upper_M = digits_M // 10**8, digits_M // 10**4
    text_M5 = np.empty((len(sizes_M), _WIDTH // 4), np.uint32)
    text_M5[:, 0], text_M5[:, 2] = _START, _POINT
    text_M5[:, 1] = _FOUR[first_M]
    text_M5[:, 3] = _FOUR[upper_M - 10**4 * first_M]
    text_M5[:, 4] = _FOUR[digits_M - 10**4 * upper_M]
    is_kept_MC = _used(rows_ND, digits_M, zeros_M)
    ends_N = np.cumsum(is_kept_MC.reshape(len(rows_ND), -1).sum(axis=1)).tolist()
    text = text_M5.view(np.uint8)[is_kept_MC].tobytes()
    return [text[start:end] for start, end in zip([0, *ends_N[:-1]], ends_N, strict=True)]


def _used(rows_ND: np.ndarray, digits_M: np.ndarray, zeros_M: np.ndarray) -> np.ndarray:
    """Return which characters of each number are part of its text, (M, `_WIDTH`) bool.

    Args:
        rows_ND: The numbers.
        digits_M: Their nine digits as an integer.
        zeros_M: The zeros before the first of these digits, with the zero before the point.
    """
    is_used_MC = np.zeros((len(digits_M), _WIDTH), bool)
    is_used_MC[:, 0] = is_used_MC[:, _FIRST_DIGIT] = is_used_MC[:, _REST:] = True
    is_used_MC[:, _MINUS] = np.signbit(rows_ND).ravel()
    is_used_MC[:, _LEADING] = is_used_MC[:, _LEADING + 1] = zeros_M > 0
    for place in range(_FIRST_DIGIT - _ZEROS):
        is_used_MC[:, _ZEROS + place] = zeros_M > place + 1
    is_used_MC[:, _INNER_POINT] = zeros_M == 0
    (left_K,) = np.nonzero(digits_M % 10 == 0)  # with zeros at the end, which are left out
    for place in reversed(range(_REST, _WIDTH)):
        is_used_MC[left_K, place] = False
        divisor = 10 ** (_WIDTH - place + 1)
        left_K = left_K[digits_M[left_K] % divisor == 0] if place > _REST else left_K
    is_whole_K = digits_M[left_K] % 10 ** (_DIGITS - 1) == 0
    is_used_MC[left_K[is_whole_K], _INNER_POINT] = False
    return is_used_MC
