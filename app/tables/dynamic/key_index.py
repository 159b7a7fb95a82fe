"""A hash table from keys to rows, for many keys at a time, in memory that is allocated once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..initial import SPLITMIX_LAST_SHIFT, SPLITMIX_ROUNDS, SPLITMIX_STEP

# A search for a missing key looks at 2.5 cells on average if half of the cells are filled, and at 4
# if five eighths are (Knuth, The Art of Computer Programming 3, section 6.4, theorem K).
_CELLS_PER_ROW = 2
_MAX_REMOVED = 8  # the index is rebuilt when one cell in 8 is marked as removed
_BLOCK = 1 << 20
DEPTH = 4  # counters of a key (Cormode & Muthukrishnan 2005: an error has chance e^-4 = 2 %)
MAX_COUNT = np.iinfo(np.uint8).max
_FREE, _REMOVED = 0, -1
# Rules of eviction: first the rows seen the fewest times, or first those not seen for longest.
LFU, LRU = "lfu", "lru"


class KeyIndex:
    """A hash table with open addressing and linear probing, one round for all keys at once.

    A cell holds a row number + 1, and hashes are compared by row. So a row takes 16 bytes in all.
    The system commits memory when it is first written, so the table never has to grow.

    Attributes:
        hashes_V: The hash of the key of each row, (V,) int64.
    """

    def __init__(self, rows: int):
        self.hashes_V = np.zeros(rows, np.int64)
        self._cells = np.zeros(_CELLS_PER_ROW * rows + 1, np.int32)
        self._removed = 0

    def find(
        self,
        hashes_U: np.ndarray,
        same: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
    ) -> np.ndarray:
        """Return the row of each hash, (U,) int64, or -1 for a hash that is not there.

        Args:
            same: A function that takes indices into the hashes and rows with equal hashes, and
                returns whether their keys are equal, too. None if the hashes are the keys.
        """
        rows_U = np.full(len(hashes_U), -1, np.int64)
        indices, cells = np.arange(len(hashes_U)), self._first_cell(hashes_U)
        while len(indices):
            entries = self._cells.take(cells)
            rows = entries - 1
            hit = (entries > 0) & (self.hashes_V.take(rows, mode="clip") == hashes_U.take(indices))
            if same is not None:
                equal = np.flatnonzero(hit)
                hit[equal] = same(indices[equal], rows[equal])
            rows_U[indices[hit]] = rows[hit]
            further = np.flatnonzero((entries != _FREE) & ~hit)
            indices, cells = indices.take(further), self._next(cells.take(further))
        return rows_U

    def insert(self, hashes_U: np.ndarray, rows_U: np.ndarray) -> None:
        """Add rows of new keys, and store their hashes in `hashes_V`.

        Args:
            hashes_U: The hashes of the keys, (U,) int64. None of the keys is there yet.
            rows_U: Their rows (U,). None of the rows is there yet.
        """
        self.hashes_V[rows_U] = hashes_U
        cells = self._first_cell(hashes_U)
        while len(rows_U):
            before = self._cells.take(cells)
            free = np.flatnonzero(before <= 0)
            self._cells[cells[free]] = rows_U[free] + 1  # the last of two rows in one cell stays
            won = self._cells.take(cells) == rows_U + 1
            self._removed -= int(np.count_nonzero(before[won] == _REMOVED))
            rows_U, cells = rows_U[~won], self._next(cells[~won])

    def remove(self, rows_U: np.ndarray) -> None:
        """Remove rows from the index, and rebuild it if many cells are marked as removed.

        `hashes_V` keeps their hashes.
        """
        self._removed += len(rows_U)
        cells = self._first_cell(self.hashes_V[rows_U])
        while len(rows_U):
            hit = self._cells.take(cells) == rows_U + 1
            self._cells[cells[hit]] = _REMOVED
            rows_U, cells = rows_U[~hit], self._next(cells[~hit])
        if self._removed > len(self._cells) // _MAX_REMOVED:
            self._rebuild()

    def clear(self) -> None:
        """Remove all rows from the index; `hashes_V` keeps their hashes."""
        self._cells[:] = _FREE
        self._removed = 0

    def bytes(self) -> int:
        """Return the bytes that the index takes when every row is in use."""
        return self.hashes_V.nbytes + self._cells.nbytes

    def _rebuild(self) -> None:
        """Insert all rows again into empty cells, so that no cell is marked as removed."""
        rows = self._cells[self._cells > 0].astype(np.int64) - 1
        self.clear()
        for start in range(0, len(rows), _BLOCK):
            block = rows[start : start + _BLOCK]
            self.insert(self.hashes_V[block], block)

    def _first_cell(self, hashes_U: np.ndarray) -> np.ndarray:
        """Return the cell where the search for each hash starts."""
        high_U = mixed(hashes_U) >> np.uint64(32)
        return ((high_U * np.uint64(len(self._cells))) >> np.uint64(32)).astype(np.int64)

    def _next(self, cells: np.ndarray) -> np.ndarray:
        """Return the cell after each cell, in a new array; the first follows the last."""
        cells = cells + 1
        cells[cells == len(self._cells)] = 0
        return cells


def select_least(rows: np.ndarray, values: Sequence[np.ndarray], count: int) -> np.ndarray:
    """Return the rows with the least values, sorted by row number.

    Args:
        values: Arrays by row, (V,). Each decides between rows that are equal in all arrays before
            it. Of rows that are equal in all arrays, the lower are chosen.
        count: The number of rows to return, from 1 to the number of `rows`.
    """
    chosen = []
    for values_V in values:
        values_N = values_V[rows]
        limit = np.partition(values_N, count - 1)[count - 1]
        chosen.append(rows[values_N < limit])
        rows, count = rows[values_N == limit], count - len(chosen[-1])
    return np.sort(np.concatenate([*chosen, rows[:count]]))


def mixed(hashes_U: np.ndarray) -> np.ndarray:
    """Return the SplitMix64 hash of each number, uint64; hashes of different numbers differ."""
    values = hashes_U.view(np.uint64)
    for shift, factor in SPLITMIX_ROUNDS:
        values = (values ^ (values >> np.uint64(shift))) * np.uint64(factor)
    return values ^ (values >> np.uint64(SPLITMIX_LAST_SHIFT))


class Sketch:
    """A count-min sketch (Cormode & Muthukrishnan 2005) with conservative update.

    A count is never too low, and by chance too high (Estan & Varghese 2002, section 3.3.3).
    Counters have 8 bits and stop at 255. When the sightings added are twice the width, all counters
    are halved, so that keys seen long ago are forgotten (Einziger et al. 2017, "TinyLFU", section
    3.3). A count can then be too low.
    """

    def __init__(self, width: int):
        self.counts_HW = np.zeros((DEPTH, width), np.uint8)
        self.added = 0

    def look_up(
        self, hashes_U: np.ndarray, sightings_U: np.ndarray
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return an estimate of how often keys were seen; change nothing (see `store`).

        Returns:
            How often each key was seen, this time included, (U,) int64, and the indices of its
            counters, an array (U,) int64 for each hash function.
        """
        steps = (np.arange(1, DEPTH + 1, dtype=np.uint64) * np.uint64(SPLITMIX_STEP)).view(np.int64)
        width = np.uint64(self.counts_HW.shape[1])
        counters_HU = [(mixed(hashes_U + step) % width).view(np.int64) for step in steps]
        pairs = zip(self.counts_HW, counters_HU, strict=True)
        before_U = np.min([counts.take(counters) for counts, counters in pairs], axis=0)
        return before_U + sightings_U, counters_HU

    def store(
        self, counters_HU: list[np.ndarray], seen_U: np.ndarray, sightings_U: np.ndarray
    ) -> None:
        """Write the counts that `look_up` returned; a count above 255 is stored as 255.

        When the sightings added are twice the width, they and all counters are halved.
        """
        stored_U = np.minimum(seen_U, MAX_COUNT).astype(np.uint8)
        for counts, counters in zip(self.counts_HW, counters_HU, strict=True):
            np.maximum.at(counts, counters, stored_U)
        self.added += int(sightings_U.sum())
        if self.added >= 2 * self.counts_HW.shape[1]:
            self.counts_HW >>= 1
            self.added //= 2
