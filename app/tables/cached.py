"""A cache on the device for a table whose rows are stored in host memory or in a file.

The table that stores all rows is the backing table. Some ids are pinned: their rows stay in the
cache. The rows of other ids are loaded when they are needed, and evict rows that were not needed
for longest. A row that is cached is read and written in the cache only, any other row in the
backing table only, so no read is stale.

A `CacheMap` decides which rows to load and evict. A `CachedTable` holds the rows. Steps find rows
by a variable from ids to positions in the cache, 4 bytes an id. The variable is in host memory,
where steps prepare their ids (see `app.types.HOST`). There it takes no memory of the device, and
TensorFlow has no GPU kernel to gather from an int32 variable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..types import HOST
from .base import Ids, Layout, LocatedIds, Table
from .device import DeviceTable, make_cache
from .row_reads import row_slices

_NONE = -1  # the position of an id that is not cached, and the id of a free position
_FLOAT_BYTES = 4
_ROWS = ""  # the key of the rows themselves, beside the names of slots


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
        self._positions_V = np.full(rows, _NONE, np.int32)
        self._positions_V[pinned_N] = np.arange(len(pinned_N))
        self._pinned_are_first = np.array_equal(pinned_N, np.arange(len(pinned_N)))
        self._ids_C = np.full(unpinned, _NONE, np.int64)
        self._last_chunk_C = np.full(unpinned, -1, np.int64)  # the last chunk that needed the row
        self._chunk = -1

    def drop_pinned(self, ids_N: np.ndarray) -> np.ndarray:
        """Return the ids that are not pinned, repeated ids included.

        Args:
            ids_N: Ids (N,).
        """
        if self._pinned_are_first:  # a comparison is ten times as fast as a look-up
            return ids_N[ids_N >= len(self.pinned_N)]
        positions_N = self._positions_V[ids_N]
        return ids_N[(positions_N == _NONE) | (positions_N >= len(self.pinned_N))]

    def misses(self, ids_N: np.ndarray) -> np.ndarray:
        """Return the ids that are not cached, repeated ids included.

        Args:
            ids_N: Ids (N,).
        """
        return ids_N[self._positions_V[ids_N] == _NONE]

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
        loaded_ids_M = np.unique(ids_N[positions_N == _NONE]).astype(np.int64)
        is_idle_C = np.ones(self.unpinned, bool)
        is_idle_C[positions_N[positions_N != _NONE] - first] = False
        idle_I = np.flatnonzero(is_idle_C)
        if len(idle_I) < len(loaded_ids_M):
            return None
        oldest_I = idle_I[np.argsort(self._last_chunk_C[idle_I], kind="stable")]
        loaded_M = oldest_I[: len(loaded_ids_M)]
        evicted_N = loaded_M[self._ids_C[loaded_M] != _NONE]
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
            ids_N: The ids that the new chunk of steps needs.
        """
        first = len(self.pinned_N)
        self._chunk += 1
        self._positions_V[plan.evicted_ids_N] = _NONE
        self._positions_V[plan.loaded_ids_M] = plan.loaded_positions_M
        self._ids_C[plan.loaded_positions_M - first] = plan.loaded_ids_M
        self._last_chunk_C[self._positions_V[ids_N] - first] = self._chunk


class CachedTable(tf.Module):
    """The cached rows of a table, as a `tables.base.Table` that steps train on.

    Only cached ids may be gathered or written, after `allocate`; on a CPU TensorFlow raises for any
    other id. The slots of the backing table are cached with its rows.

    Args:
        backing: The table that stores all rows.
        device: The device of the steps and of the cache.
        positions_V: The variable from ids to positions that slots share with their table; by
            default a new one.

    Attributes:
        cache_map: The map of this table, from `allocate` on; slots have none.
        planned: The chunk that was planned last, if any (see `tables.prefetch`).
    """

    cache_map: CacheMap
    planned: Any = None

    def __init__(self, backing: Table, device: str, positions_V: tf.Variable | None = None):
        super().__init__()
        self.backing, self.device = backing, device
        self.rows, self.columns = backing.rows, backing.columns
        self._cache: DeviceTable | None = None
        self._ids_P = np.zeros(0, np.int64)  # the id at each position; not used by slots
        if positions_V is None:
            with tf.device(HOST):
                positions_V = tf.Variable(lambda: tf.fill([backing.rows], _NONE), trainable=False)
        self._positions_V = positions_V
        self.slots = {name: self._cache_slot(slot) for name, slot in backing.slots.items()}

    def allocate(self, cache_map: CacheMap) -> None:
        """Make the cache on the device, also for the slots, and load the pinned rows.

        Args:
            cache_map: The map of this table, to which no plan was applied yet.
        """
        self.cache_map = cache_map
        size = len(cache_map.pinned_N) + cache_map.unpinned
        self._ids_P = np.full(size, _NONE, np.int64)
        for table in self._with_slots().values():
            with tf.device(self.device):
                table._cache = make_cache(table.backing, size)
        for part in row_slices(len(cache_map.pinned_N), self._total_columns()):
            ids = cache_map.pinned_N[part].astype(np.int64)
            positions = np.arange(part.start, part.stop, dtype=np.int32)
            nothing = np.zeros(0, np.int64)
            plan = CachePlan(nothing, nothing.astype(np.int32), ids, positions)
            self.apply(plan, self.load(ids))

    def locate(self, ids_U: Ids) -> LocatedIds:
        """Look up the positions of ids in the cache, -1 if not cached; see `Table.locate`."""
        if isinstance(ids_U, LocatedIds):
            return ids_U
        with tf.device(HOST):
            positions_U = tf.raw_ops.ResourceGather(
                resource=self._positions_V.handle, indices=ids_U, dtype=tf.int32
            )
        return LocatedIds(ids_U, positions_U)

    def gather(self, ids_U: Ids) -> tf.Tensor:
        """Return the rows of ids that are cached; see `Table.gather`."""
        return self._cache.gather(self.locate(ids_U).rows)

    def assign(self, ids_U: Ids, rows_UD: tf.Tensor) -> None:
        """Replace the rows of cached ids in the cache only; see `flush` and `Table.assign`."""
        self._cache.assign(self.locate(ids_U).rows, rows_UD)

    def bytes(self) -> int:
        """Return the bytes that the cache takes on the device, slots included."""
        return sum(table._cache.bytes() for table in self._with_slots().values())

    def is_finite(self) -> bool:
        """Return whether every number of the cached rows is finite; slots are not read."""
        return self._cache.is_finite()

    def layout(self) -> Layout:
        """Return how a checkpoint holds the backing table."""
        return self.backing.layout()

    def load(self, ids_N: np.ndarray) -> dict[str, tf.Tensor]:
        """Read rows of the backing table and of its slots, and copy them to the device.

        The cache does not change; `apply` puts the rows into it.

        Args:
            ids_N: Unique ids (N,), int64.

        Returns:
            Rows (N, D), float32, by the name of the slot; "" for the rows of the table itself.
        """
        with tf.device(self.device):
            return {
                name: tf.identity(table.backing.gather(tf.constant(ids_N)))
                for name, table in self._with_slots().items()
            }

    def apply(self, plan: CachePlan, loaded: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Replace the evicted rows of a plan by the loaded rows. Call this between two steps.

        The backing table is not written: give the result to `write_back`.

        Args:
            plan: The rows to evict and to load.
            loaded: The result of `load(plan.loaded_ids_M)`.

        Returns:
            The evicted rows, by the names that `load` uses.
        """
        with tf.device(self.device):
            evicted = self._gather_positions(plan.evicted_positions_N)
            for name, table in self._with_slots().items():
                table._cache.assign_exact(tf.constant(plan.loaded_positions_M), loaded[name])
        self._set_positions(plan.evicted_ids_N, np.full(len(plan.evicted_ids_N), _NONE, np.int32))
        self._set_positions(plan.loaded_ids_M, plan.loaded_positions_M)
        self._ids_P[plan.evicted_positions_N] = _NONE
        self._ids_P[plan.loaded_positions_M] = plan.loaded_ids_M
        return evicted

    def write_back(self, ids_N: np.ndarray, rows: Mapping[str, tf.Tensor]) -> None:
        """Write evicted rows to the backing table and its slots, without rounding them again.

        Args:
            ids_N: Unique ids (N,), int64.
            rows: Their rows, as `apply` returns them.
        """
        for name, table in self._with_slots().items():
            table.backing.assign_exact(tf.constant(ids_N), rows[name])

    def flush(self) -> None:
        """Write all cached rows and slots to the backing table. They stay in the cache, too."""
        positions = np.flatnonzero(self._ids_P != _NONE).astype(np.int32)
        for part in row_slices(len(positions), self._total_columns()):
            with tf.device(self.device):
                rows = self._gather_positions(positions[part])
            self.write_back(self._ids_P[positions[part]], rows)

    def version(self) -> int:
        """Return a number that changes when a step writes a row to the backing table: never."""
        return 0

    def row_bytes(self) -> int:
        """Return the bytes that a row and its slots take when they are loaded or evicted."""
        return _FLOAT_BYTES * self._total_columns()

    def _cache_slot(self, slot: Table) -> CachedTable:
        """Return a table for the cached rows of a slot of the backing table, without a cache."""
        return CachedTable(slot, self.device, self._positions_V)

    def _total_columns(self) -> int:
        """Return the columns of a row and of all its slots together."""
        return sum(table.columns for table in self._with_slots().values())

    def _with_slots(self) -> dict[str, CachedTable]:
        """Return the slots by name, and this table under the name ""."""
        return {_ROWS: self, **self.slots}

    def _gather_positions(self, positions: np.ndarray) -> dict[str, tf.Tensor]:
        """Return the cached rows at the given positions, by the names of `_with_slots`."""
        positions = tf.constant(positions)
        return {name: table._cache.gather(positions) for name, table in self._with_slots().items()}

    def _set_positions(self, ids_N: np.ndarray, positions_N: np.ndarray) -> None:
        """Change the positions of ids in the variable that steps read."""
        with tf.device(HOST):
            tf.raw_ops.ResourceScatterUpdate(
                resource=self._positions_V.handle, indices=tf.constant(ids_N), updates=positions_N
            )
