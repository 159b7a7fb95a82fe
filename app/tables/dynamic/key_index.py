"""From the hashes of keys to their rows, many at a time, in memory that is set aside once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

# The finaliser of SplitMix64 (see `tables.initial`).
_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT = 31
# A search for a key that is not there looks at 2.5 places on average where half are filled, at 4
# where five eighths are (Knuth, The Art of Computer Programming 3, section 6.4, theorem K).
_PLACES_PER_ROW = 2
_WASTED = 8  # of so many places one may be wasted on removed keys, before all are filled anew
_BLOCK = 1 << 20
_FREE, _REMOVED = 0, -1


class KeyIndex:
    """Open addressing with linear probing, a round of which is made for all keys at once.

    hashes_V: (V,) int64, by row. Every place of the index holds a row + 1, and a row's hash is
    compared where it is kept; so a row costs 16 bytes in all, which the system commits when they
    are first written. Nothing is ever copied to grow. V is below 2^31.
    """

    def __init__(self, rows: int):
        self.hashes_V = np.zeros(rows, np.int64)
        self._places = np.zeros(_PLACES_PER_ROW * rows + 1, np.int32)
        self._wasted = 0

    def find(
        self,
        hashes_U: np.ndarray,
        same: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
    ) -> np.ndarray:
        """The row of each hash, (U,) int64, or -1.

        same: from positions among the hashes and the rows found for them, whose hashes are equal,
        to whether the keys are, too; None where hashes are the keys.
        """
        rows_U = np.full(len(hashes_U), -1, np.int64)
        which, places = np.arange(len(hashes_U)), self._home(hashes_U)
        while len(which):
            entries = self._places.take(places)
            rows = entries - 1
            hit = (entries > 0) & (self.hashes_V.take(rows, mode="clip") == hashes_U.take(which))
            if same is not None:
                equal = np.flatnonzero(hit)
                hit[equal] = same(which[equal], rows[equal])
            rows_U[which[hit]] = rows[hit]
            further = np.flatnonzero((entries != _FREE) & ~hit)
            which, places = which.take(further), self._next(places.take(further))
        return rows_U

    def insert(self, hashes_U: np.ndarray, rows_U: np.ndarray) -> None:
        """Adds rows that are not in it; their keys are not, either."""
        self.hashes_V[rows_U] = hashes_U
        places = self._home(hashes_U)
        while len(rows_U):
            before = self._places.take(places)
            open_ = np.flatnonzero(before <= 0)
            self._places[places[open_]] = rows_U[open_] + 1  # of two at one place the last stays
            won = self._places.take(places) == rows_U + 1
            self._wasted -= int(np.count_nonzero(before[won] == _REMOVED))
            rows_U, places = rows_U[~won], self._next(places[~won])

    def remove(self, rows_U: np.ndarray) -> None:
        """Takes out rows that are in it."""
        self._wasted += len(rows_U)
        places = self._home(self.hashes_V[rows_U])
        while len(rows_U):
            here = self._places.take(places) == rows_U + 1
            self._places[places[here]] = _REMOVED
            rows_U, places = rows_U[~here], self._next(places[~here])
        if self._wasted > len(self._places) // _WASTED:
            self._fill_anew()

    def clear(self) -> None:
        """Takes out all rows."""
        self._places[:] = _FREE
        self._wasted = 0

    def bytes(self) -> int:
        """Bytes when every row is in use."""
        return self.hashes_V.nbytes + self._places.nbytes

    def _fill_anew(self) -> None:
        rows = self._places[self._places > 0].astype(np.int64) - 1
        self.clear()
        for start in range(0, len(rows), _BLOCK):
            block = rows[start : start + _BLOCK]
            self.insert(self.hashes_V[block], block)

    def _home(self, hashes_U: np.ndarray) -> np.ndarray:
        """Where the search for each hash starts: its high half as a share of the places."""
        high_U = mixed(hashes_U) >> np.uint64(32)
        return ((high_U * np.uint64(len(self._places))) >> np.uint64(32)).astype(np.int64)

    def _next(self, places: np.ndarray) -> np.ndarray:
        places = places + 1
        places[places == len(self._places)] = 0
        return places


def least(rows: np.ndarray, values: Sequence[np.ndarray], count: int) -> np.ndarray:
    """Return `count` of the rows, those with the least values, in rising order.

    values: By row; each of them decides where those before it are equal, then the row's number.
    """
    chosen = []
    for of_V in values:
        found = of_V[rows]
        limit = np.partition(found, count - 1)[count - 1]
        chosen.append(rows[found < limit])
        rows, count = rows[found == limit], count - len(chosen[-1])
    return np.sort(np.concatenate([*chosen, rows[:count]]))


def mixed(hashes_U: np.ndarray) -> np.ndarray:
    """Evenly spread uint64 numbers, one to one with the int64 hashes."""
    values = hashes_U.view(np.uint64)
    for shift, factor in _ROUNDS:
        values = (values ^ (values >> np.uint64(shift))) * np.uint64(factor)
    return values ^ (values >> np.uint64(_LAST_SHIFT))
