"""The map of a cache: which rows it holds, which to load and which to evict (see `cached`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

NONE = -1  # the position of an id that is not cached, and the id of a free position


class CachePlan(NamedTuple):
    """The rows to evict from a cache, and then the rows to load into it.

    Attributes:
        evicted_ids_N: Ids to evict, int64.
        evicted_positions_N: The positions that they leave, int32.
        loaded_ids_M: Ids to load, int64.
        loaded_positions_M: The positions that they take, int32.
    """

    evicted_ids_N: np.ndarray
    evicted_positions_N: np.ndarray
    loaded_ids_M: np.ndarray
    loaded_positions_M: np.ndarray


class CacheMap:
    """The position of each cached id, for one chunk of steps after another. It holds no rows.

    Args:
        rows: The number of rows of the backing table, V.
        pinned_N: Unique ids, which keep the positions 0 .. N - 1.
        unpinned: The number of positions after those, C, for all other ids.
    """

    def __init__(self, rows: int, pinned_N: np.ndarray, unpinned: int):
        self.pinned_N, self.unpinned = pinned_N, unpinned
        self._positions_V = np.full(rows, NONE, np.int32)
        self._positions_V[pinned_N] = np.arange(len(pinned_N))
        self._pinned_are_first = np.array_equal(pinned_N, np.arange(len(pinned_N)))
        self._ids_C = np.full(unpinned, NONE, np.int64)
        self._last_chunk_C = np.full(unpinned, -1, np.int64)  # the last chunk that needed the row
        self._chunk = -1

    def drop_pinned(self, ids_N: np.ndarray) -> np.ndarray:
        """Return the ids that are not pinned, in their order, repeated ids included.

        Args:
            ids_N: Ids (N,).
        """
        if self._pinned_are_first:  # a comparison is ten times as fast as a look-up
            return ids_N[ids_N >= len(self.pinned_N)]
        positions_N = self._positions_V[ids_N]
        return ids_N[(positions_N == NONE) | (positions_N >= len(self.pinned_N))]

    def misses(self, ids_N: np.ndarray) -> np.ndarray:
        """Return the ids that are not cached, in their order, repeated ids included.

        Args:
            ids_N: Ids (N,).
        """
        return ids_N[self._positions_V[ids_N] == NONE]

    def positions(self, ids: np.ndarray) -> np.ndarray:
        """Return the position of each id, `NONE` for one that is not cached.

        Args:
            ids: Ids of any shape.

        Returns:
            Positions of the same shape, int32.
        """
        return self._positions_V[ids]

    def plan(self, ids_N: np.ndarray) -> CachePlan | None:
        """Plan how to cache all of the given ids. Changes nothing; `apply` does.

        Free positions are taken first. Then rows are evicted that were not needed for longest,
        never rows of the given ids.

        Args:
            ids_N: The ids that the next chunk of steps needs, none of them pinned; repeated ids
                are allowed.

        Returns:
            The plan, or None if the cache has too few positions for the ids.
        """
        first = len(self.pinned_N)
        positions_N = self._positions_V[ids_N]
        missed_N = ids_N[positions_N == NONE]
        # With counts, NumPy (from 2.3) sorts; without them it hashes, which takes 20 times as long.
        loaded_ids_M = np.unique(missed_N, return_counts=True)[0].astype(np.int64)
        is_idle_C = np.ones(self.unpinned, bool)
        is_idle_C[positions_N[positions_N != NONE] - first] = False
        idle_I = np.flatnonzero(is_idle_C)
        if len(idle_I) < len(loaded_ids_M):
            return None
        loaded_M = idle_I[_oldest(self._last_chunk_C[idle_I], len(loaded_ids_M))]
        evicted_N = loaded_M[self._ids_C[loaded_M] != NONE]
        evicted_positions_N, loaded_positions_M = (
            (index + first).astype(np.int32) for index in (evicted_N, loaded_M)
        )
        return CachePlan(
            self._ids_C[evicted_N], evicted_positions_N, loaded_ids_M, loaded_positions_M
        )

    def apply(self, plan: CachePlan, ids_N: np.ndarray) -> None:
        """Record that the rows of a plan are evicted and loaded, and that a new chunk needs ids.

        Args:
            plan: The result of `plan(ids_N)`.
            ids_N: The ids that the new chunk of steps needs, none of them pinned.
        """
        first = len(self.pinned_N)
        self._chunk += 1
        self._positions_V[plan.evicted_ids_N] = NONE
        self._positions_V[plan.loaded_ids_M] = plan.loaded_positions_M
        self._ids_C[plan.loaded_positions_M - first] = plan.loaded_ids_M
        self._last_chunk_C[self._positions_V[ids_N] - first] = self._chunk


def _oldest(chunks_I: np.ndarray, count: int) -> np.ndarray:
    """Return the indices of the `count` smallest numbers, of equal ones the first, in reverse.

    Ids that are loaded together in ascending order then leave the cache in descending order, so the
    smallest, which are the most frequent ones in a vocabulary, stay longest.
    """
    if not 0 < count < len(chunks_I):
        return np.arange(count)
    last = np.partition(chunks_I, count - 1)[count - 1]
    is_taken_I = chunks_I < last
    is_taken_I[np.flatnonzero(chunks_I == last)[: count - np.count_nonzero(is_taken_I)]] = True
    return np.flatnonzero(is_taken_I)[::-1]
