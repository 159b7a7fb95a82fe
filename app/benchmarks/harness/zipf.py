"""Draw ids by Zipf's law."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def zipf_ids(random: np.random.Generator, rows: int, shape: int | Sequence[int]) -> np.ndarray:
    """Return ids drawn by Zipf's law, id k in proportion to 1 / (k + 1).

    Args:
        random: The generator of random numbers.
        rows: The number of ids, from 0.
        shape: The shape of the result.

    Returns:
        Ids of this shape, int32.
    """
    cumulative_V = np.cumsum(1 / np.arange(1, rows + 1))
    drawn = random.random(shape) * cumulative_V[-1]
    return np.searchsorted(cumulative_V[:-1], drawn, side="right").astype(np.int32)
