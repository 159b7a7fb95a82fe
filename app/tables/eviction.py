"""Which rows of a map of keys may lose their keys, and which of those do."""

from __future__ import annotations

import numpy as np


def idle(counts_V: np.ndarray, last_V: np.ndarray, before: int) -> np.ndarray:
    """Return the rows in use that were last seen before a step, rising.

    Args:
        counts_V: Sightings of the key of each row; 0 where a row has none.
        last_V: The step in which each row was last seen.
        before: The step.
    """
    return np.flatnonzero((last_V < before) & (counts_V > 0))


def rarest(rows: np.ndarray, count: int, counts_V: np.ndarray, last_V: np.ndarray) -> np.ndarray:
    """Return the `count` rows with the fewest sightings, then the oldest, then the lowest, rising.

    Args:
        rows: The rows to choose from, rising; at least `count`.
        count: How many, at least 1.
        counts_V: Sightings of the key of each row.
        last_V: The step in which each row was last seen.
    """
    chosen = []
    for of_V in (counts_V, last_V):
        values = of_V[rows]
        limit = np.partition(values, count - 1)[count - 1]
        chosen.append(rows[values < limit])
        rows, count = rows[values == limit], count - len(chosen[-1])
    return np.sort(np.concatenate([*chosen, rows[:count]]))
