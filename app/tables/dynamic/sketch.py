"""An estimate of how often keys without a row were seen, in fixed memory."""

from __future__ import annotations

import numpy as np

from .key_index import mixed

DEPTH = 4  # counters of a key (Cormode & Muthukrishnan 2005: an error has chance e^-4 = 2 %)
_STEP = np.uint64(0x9E3779B97F4A7C15)  # of SplitMix64: gives each counter another hash function
MAX_COUNT = np.iinfo(np.uint8).max


class Sketch:
    """A count-min sketch (Cormode & Muthukrishnan 2005) with conservative update.

    A count is never too low, and by chance too high (Estan & Varghese 2002, section 3.3.3).
    Counters have 8 bits and stop at 255. When the sightings added are twice the width, all counters
    are halved, so that keys seen long ago are forgotten (Einziger et al. 2017, "TinyLFU", section
    3.3). A count can then be too low.

    Args:
        width: The number of counters for each hash function.
    """

    def __init__(self, width: int):
        self.counts_HW = np.zeros((DEPTH, width), np.uint8)
        self.added = 0

    def look_up(
        self, hashes_U: np.ndarray, sightings_U: np.ndarray
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return an estimate of how often keys were seen; change nothing (see `store`).

        Args:
            hashes_U: The hashes of unique keys, (U,) int64.
            sightings_U: How often each key is seen this time, (U,).

        Returns:
            How often each key was seen, this time included, (U,) int64, and the indices of its
            counters, an array (U,) int64 for each hash function.
        """
        steps = (np.arange(1, DEPTH + 1, dtype=np.uint64) * _STEP).view(np.int64)
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

        Args:
            counters_HU: The indices of the counters, as `look_up` returned them.
            seen_U: How often each key was seen, this time included.
            sightings_U: How often each key is seen this time.
        """
        stored_U = np.minimum(seen_U, MAX_COUNT).astype(np.uint8)
        for counts, counters in zip(self.counts_HW, counters_HU, strict=True):
            np.maximum.at(counts, counters, stored_U)
        self.added += int(sightings_U.sum())
        if self.added >= 2 * self.counts_HW.shape[1]:
            self.counts_HW >>= 1
            self.added //= 2
