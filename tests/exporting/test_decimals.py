from __future__ import annotations

import numpy as np
import pytest

from app.exporting.decimals import format_rows

DRAW = np.random.default_rng(0)


@pytest.mark.parametrize(
    "rows",
    [
        DRAW.normal(size=(300, 100)),
        DRAW.normal(size=(500, 7)) * 10.0 ** DRAW.integers(-6, 3, size=(500, 7)),
        DRAW.integers(-4096, 4096, size=(500, 3)) / 1024,  # ties of the ninth digit
        DRAW.integers(-99, 99, size=(500, 2)) / 10,  # few digits, and 0
        np.nextafter(np.float32([[10], [1], [0.1], [1e-3], [1e-4]]), np.float32(0)),
        np.nextafter(np.float32([[10], [1], [0.1], [1e-3], [1e-4]]), np.float32(20)),
        # Sizes with an exponent: at powers of ten, ties, and drawn by their bits.
        np.nextafter(np.float32([[1e-5], [1e-6], [1e-7], [1e-8]]), np.float32(0)),
        np.float32([[1e-5, 2e-5, -1e-6, 3e-6, 1e-7, -9e-8, 1e-8, 1e-9]]),
        2.0 ** DRAW.integers(-27, -12, size=(500, 3)) * DRAW.integers(1, 2000, size=(500, 3)),
        DRAW.integers(0x32000000, 0x39000000, size=(500, 9), dtype=np.uint32).view(np.float32),
        DRAW.integers(0, 2**32, size=(2000, 1), dtype=np.uint32).view(np.float32),
        np.zeros((0, 3)),
    ],
)
def test_numbers_are_those_of_python(rows):
    rows = rows.astype(np.float32)
    line = " %.9g" * rows.shape[1]
    assert format_rows(rows) == [(line % tuple(row)).encode() for row in rows.tolist()]
