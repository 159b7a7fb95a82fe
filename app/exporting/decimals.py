"""Write float32 numbers as text, many at a time.

Python takes 0.2 microseconds to format a number with nine digits, which is half a minute for the
vectors of 500,000 words. Here the digits of a whole matrix are computed by numpy.
"""

from __future__ import annotations

import numpy as np

# Nine significant digits keep every float32 exactly (IEEE 754-2019, 5.12.2).
_DIGITS = 9
# Texts of four characters, each as one number, so that they are copied at once.
_FIRST = np.array([f" -{digit}." for digit in range(10)], "S4").view(np.uint32)
_FOUR = np.array([f"{number:04d}" for number in range(10_000)], "S4").view(np.uint32)
# float32 numbers above 0 have exponents from -45 to 38.
_LEAST_POWER = -38
_POWERS = np.array([float(f"1e{power}") for power in range(_LEAST_POWER, 60)])
_LEAST_EXPONENT = -45
_EXPONENT = np.array([f"e{power:+03d}" for power in range(-45, 39)], "S4").view(np.uint32)


def format_rows(rows_ND: np.ndarray) -> list[bytes]:
    """Return each row as text: its numbers as in " -1.23456789e-01", each after a blank.

    The product with a power of ten is off by at most 2^-52 of the number, so a number halfway
    between two of nine digits may become either. Both are read as the same float32.

    Args:
        rows_ND: The rows, float32.
    """
    if not np.isfinite(rows_ND).all():
        line = f" %.{_DIGITS}g" * rows_ND.shape[1]
        return [(line % tuple(row)).encode() for row in rows_ND.tolist()]
    sizes_M = np.abs(rows_ND.astype(np.float64).ravel())
    digits_M, powers_M = _scientific(sizes_M)
    # Not np.divmod, which takes several times as long.
    first_M, upper_M = digits_M // 10**8, digits_M // 10**4
    text_M4 = np.empty((len(sizes_M), 4), np.uint32)
    text_M4[:, 0] = _FIRST[first_M]
    text_M4[:, 1] = _FOUR[upper_M - 10**4 * first_M]
    text_M4[:, 2] = _FOUR[digits_M - 10**4 * upper_M]
    text_M4[:, 3] = _EXPONENT[powers_M - _LEAST_EXPONENT]
    text_MC = text_M4.view(np.uint8)
    is_kept_MC = np.ones(text_MC.shape, bool)
    is_kept_MC[:, 1] = np.signbit(rows_ND).ravel()
    ends_N = np.cumsum(is_kept_MC.reshape(len(rows_ND), -1).sum(axis=1)).tolist()
    text = text_MC[is_kept_MC].tobytes()
    return [text[start:end] for start, end in zip([0, *ends_N[:-1]], ends_N, strict=True)]


def _scientific(sizes_M: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return d and p, int32, of numbers d 10^(p - 8), where d has nine digits; 0 and 0 for 0."""
    is_zero_M = sizes_M == 0
    powers_M = np.floor(np.log10(np.where(is_zero_M, 1.0, sizes_M))).astype(np.int32)
    low, high = 10 ** (_DIGITS - 1), 10**_DIGITS
    digits_M = np.rint(sizes_M * _POWERS[_DIGITS - 1 - powers_M - _LEAST_POWER]).astype(np.int32)
    # The logarithm may be off at a power of ten, and rounding may reach the next one.
    wrong_K = np.flatnonzero((digits_M >= high) | ((digits_M < low) & ~is_zero_M))
    powers_M[wrong_K] += np.where(digits_M[wrong_K] < low, -1, 1)
    scales_K = _POWERS[_DIGITS - 1 - powers_M[wrong_K] - _LEAST_POWER]
    digits_M[wrong_K] = np.rint(sizes_M[wrong_K] * scales_K)
    return digits_M, powers_M
