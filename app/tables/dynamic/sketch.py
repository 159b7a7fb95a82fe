"""About how often keys were seen that have no row, in memory that does not grow with them."""

from __future__ import annotations

import numpy as np

from .key_index import mixed

DEPTH = 4  # counters of a key (Cormode & Muthukrishnan 2005: an error has chance e^-4 = 2 %)
_STEP = np.uint64(0x9E3779B97F4A7C15)  # of SplitMix64: another hash function for each counter
MOST = np.iinfo(np.uint8).max


class Sketch:
    """A count-min sketch (Cormode & Muthukrishnan 2005) with conservative update (Estan & Varghese
    2002, section 3.3.3): a count is never too low, and too high by chance.

    Counters are 8 bits wide and stop at 255. When as many sightings as twice the width were added,
    all are halved, so that keys seen long ago are forgotten (Einziger et al. 2017, "TinyLFU",
    section 3.3); a count may then be too low.

    width: counters a hash function.
    """

    def __init__(self, width: int):
        self.counts_HW = np.zeros((DEPTH, width), np.uint8)
        self.added = 0

    def add(self, hashes_U: np.ndarray, sightings_U: np.ndarray) -> np.ndarray:
        """How often each key was seen, this time included: (U,) int64. Hashes are distinct."""
        seen_U, places_HU = self.look_up(hashes_U, sightings_U)
        self.store(places_HU, seen_U, sightings_U)
        return seen_U

    def look_up(
        self, hashes_U: np.ndarray, sightings_U: np.ndarray
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return how often each key was seen, this time included, and the places of its counters.

        Changes nothing; `store` does.
        """
        steps = (np.arange(1, DEPTH + 1, dtype=np.uint64) * _STEP).view(np.int64)
        width = np.uint64(self.counts_HW.shape[1])
        places_HU = [(mixed(hashes_U + step) % width).view(np.int64) for step in steps]
        pairs = zip(self.counts_HW, places_HU, strict=True)
        before_U = np.min([counts.take(places) for counts, places in pairs], axis=0)
        return before_U + sightings_U, places_HU

    def store(
        self, places_HU: list[np.ndarray], seen_U: np.ndarray, sightings_U: np.ndarray
    ) -> None:
        """Count the keys that `look_up` gave these numbers for."""
        stored_U = np.minimum(seen_U, MOST).astype(np.uint8)
        for counts, places in zip(self.counts_HW, places_HU, strict=True):
            np.maximum.at(counts, places, stored_U)
        self.added += int(sightings_U.sum())
        if self.added >= 2 * self.counts_HW.shape[1]:
            self.counts_HW >>= 1
            self.added //= 2
