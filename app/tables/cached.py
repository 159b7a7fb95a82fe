"""A cache on the device for a table whose rows are stored in host memory or in a file.

The table that stores all rows is the backing table. Some ids are pinned: their rows stay in the
cache. The rows of other ids are loaded when they are needed, and evict rows that were not needed
for longest. A row that is cached is read and written in the cache only, any other row in the
backing table only, so no read is stale.

A `CacheMap` decides which rows to load and evict. A `CachedTable` holds the rows, in a
`DeviceTable`. Steps that are given the positions of their ids in the cache train on that table
alone, so XLA can compile them (see `prefetch`). Other steps find rows by a variable from ids to
positions, 4 bytes an id. The variable is in host memory, where steps prepare their ids (see
`lexrow.types.HOST`). There it takes no memory of the device, and TensorFlow has no GPU kernel to
gather from an int32 variable.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..types import HOST
from .base import Ids, Layout, LocatedIds, Table
from .cache_map import NONE, CacheMap, CachePlan
from .device import DeviceTable, make_cache
from .row_reads import row_slices

_FLOAT_BYTES = 4
_ROWS = ""  # the key of the rows themselves, beside the names of slots


class CacheSize(NamedTuple):
    """The size of the cache of a table.

    Attributes:
        pinned_N: The ids of the rows that stay in the cache, int64.
        unpinned: The number of further rows that the cache holds.
        loaded: The number of further rows that the first chunk loads.
    """

    pinned_N: np.ndarray
    unpinned: int
    loaded: int


class LoadedRows(NamedTuple):
    """The rows to load by a plan, and its positions, all in the memory of the device.

    Attributes:
        rows: Rows (M, D), float32, by the name of the slot; "" for the rows of the table itself.
        evicted_positions_N: As in `CachePlan`.
        loaded_positions_M: As in `CachePlan`.
    """

    rows: Mapping[str, tf.Tensor]
    evicted_positions_N: tf.Tensor
    loaded_positions_M: tf.Tensor


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
        cache: The cached rows by position, with the cached rows of the slots, from `allocate` on.
        cache_map: The map of this table, from `allocate` on; slots have none.
        planned: The chunk that was planned last, if any (see `tables.prefetch`).
        counts: For metrics of this table alone: ids that were `looked_up` by prefetched batches and
            are not pinned, `missed` ones among them, and rows `loaded` and `evicted`.
    """

    cache: DeviceTable
    cache_map: CacheMap
    planned: Any = None

    def __init__(self, backing: Table, device: str, positions_V: tf.Variable | None = None):
        super().__init__()
        self.backing, self.device = backing, device
        self.rows, self.columns = backing.rows, backing.columns
        self.counts: collections.Counter[str] = collections.Counter()
        self._ids_P = np.zeros(0, np.int64)  # the id at each position; not used by slots
        if positions_V is None:
            with tf.device(HOST):
                positions_V = tf.Variable(lambda: tf.fill([backing.rows], NONE), trainable=False)
        self._positions_V = positions_V
        self.slots = {name: self._cache_slot(slot) for name, slot in backing.slots.items()}

    def allocate(self, cache_map: CacheMap) -> None:
        """Make the cache on the device, also for the slots, and load the pinned rows.

        Args:
            cache_map: The map of this table, to which no plan was applied yet.
        """
        self.cache_map = cache_map
        size = len(cache_map.pinned_N) + cache_map.unpinned
        self._ids_P = np.full(size, NONE, np.int64)
        for table in self._with_slots().values():
            table._make_cache(size)
        self.cache.slots.update({name: slot.cache for name, slot in self.slots.items()})
        for part in row_slices(len(cache_map.pinned_N), self._total_columns()):
            ids = cache_map.pinned_N[part].astype(np.int64)
            positions = np.arange(part.start, part.stop, dtype=np.int32)
            nothing = np.zeros(0, np.int64)
            plan = CachePlan(nothing, nothing.astype(np.int32), ids, positions)
            self.apply(plan, self.load(plan))

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
        return self.cache.gather(self.locate(ids_U).rows)

    def assign(self, ids_U: Ids, rows_UD: tf.Tensor) -> None:
        """Replace the rows of cached ids in the cache only; see `flush` and `Table.assign`."""
        self.cache.assign(self.locate(ids_U).rows, rows_UD)

    def bytes(self) -> int:
        """Return the bytes that the cache takes on the device, slots included."""
        return self.cache.bytes()

    def is_finite(self) -> bool:
        """Return whether every number of the cached rows is finite; slots are not read."""
        return self.cache.is_finite()

    def layout(self) -> Layout:
        """Return how a checkpoint holds the backing table."""
        return self.backing.layout()

    def load(self, plan: CachePlan) -> LoadedRows:
        """Read rows of the backing table and of its slots, and copy them to the device.

        The cache does not change; `apply` puts the rows into it. It needs no further copy to the
        device, for which it would have to wait until the device has made all earlier steps.

        Args:
            plan: The rows to evict and to load.
        """
        with tf.device(HOST):
            ids_M = tf.constant(plan.loaded_ids_M)
            parts = self._with_slots().items()
            rows = {name: table.backing.gather(ids_M) for name, table in parts}
        with tf.device(self.device):
            return LoadedRows(
                {name: tf.identity(rows_MD) for name, rows_MD in rows.items()},
                tf.constant(plan.evicted_positions_N),
                tf.constant(plan.loaded_positions_M),
            )

    def apply(self, plan: CachePlan, loaded: LoadedRows) -> dict[str, tf.Tensor]:
        """Replace the evicted rows of a plan by the loaded rows. Call this between two steps.

        The backing table is not written: give the result to `write_back`. `cache_map` is not
        changed.

        Args:
            plan: The rows to evict and to load.
            loaded: The result of `load(plan)`.

        Returns:
            The evicted rows, by the names that `load` uses.
        """
        with tf.device(self.device):
            evicted = self._gather_positions(loaded.evicted_positions_N)
            for name, table in self._with_slots().items():
                table.cache.assign_exact(loaded.loaded_positions_M, loaded.rows[name])
        self._set_positions(plan.evicted_ids_N, np.full(len(plan.evicted_ids_N), NONE, np.int32))
        self._set_positions(plan.loaded_ids_M, plan.loaded_positions_M)
        self._ids_P[plan.evicted_positions_N] = NONE
        self._ids_P[plan.loaded_positions_M] = plan.loaded_ids_M
        return evicted

    def write_back(self, ids_N: np.ndarray, rows: Mapping[str, tf.Tensor]) -> None:
        """Write evicted rows to the backing table and its slots, without rounding them again.

        Args:
            ids_N: Unique ids (N,), int64.
            rows: Their rows, as `apply` returns them.
        """
        with tf.device(HOST):
            for name, table in self._with_slots().items():
                table.backing.assign_exact(tf.constant(ids_N), rows[name])

    def flush(self) -> None:
        """Write all cached rows and slots to the backing table. They stay in the cache, too."""
        positions = np.flatnonzero(self._ids_P != NONE).astype(np.int32)
        for part in row_slices(len(positions), self._total_columns()):
            with tf.device(self.device):
                rows = self._gather_positions(tf.constant(positions[part]))
            self.write_back(self._ids_P[positions[part]], rows)
        for table in self._with_slots().values():
            if table.backing.is_stochastic:
                table.backing.writes.assign(table.cache.writes)

    def version(self) -> int:
        """Return a number that changes when a step writes a row to the backing table: never."""
        return 0

    def row_bytes(self) -> int:
        """Return the bytes that a row and its slots take when they are moved, as float32."""
        return _FLOAT_BYTES * self._total_columns()

    def _cache_slot(self, slot: Table) -> CachedTable:
        """Return a cached table for a slot of the backing table, still without a cache."""
        return CachedTable(slot, self.device, self._positions_V)

    def _make_cache(self, rows: int) -> None:
        """Make `cache` on the device, with a number of rows, without slots."""
        with tf.device(self.device):
            self.cache = make_cache(self.backing, rows)

    def _total_columns(self) -> int:
        """Return the columns of a row and of all its slots together."""
        return sum(table.columns for table in self._with_slots().values())

    def _with_slots(self) -> dict[str, CachedTable]:
        """Return the slots by name, and this table under the name ""."""
        return {_ROWS: self, **self.slots}

    def _gather_positions(self, positions: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the cached rows at the given positions, by the names of `_with_slots`."""
        return {name: table.cache.gather(positions) for name, table in self._with_slots().items()}

    def _set_positions(self, ids_N: np.ndarray, positions_N: np.ndarray) -> None:
        """Change the positions of ids in the variable that steps read."""
        with tf.device(HOST):
            tf.raw_ops.ResourceScatterUpdate(
                resource=self._positions_V.handle, indices=tf.constant(ids_N), updates=positions_N
            )


def make_caches(
    tables: Mapping[str, Table], cache_sizes: Mapping[str, CacheSize], device: str
) -> dict[str, CachedTable]:
    """Make the cache of each table that has a size, and load its pinned rows.

    Args:
        tables: The tables in host memory or in a file, by name.
        cache_sizes: The sizes of the caches, by the name of the table.
        device: The device of the steps and of the caches.

    Returns:
        The cached tables by name. Tables without a size are left out.
    """
    cached = {}
    for name, size in cache_sizes.items():
        table = cached[name] = CachedTable(tables[name], device)
        table.allocate(CacheMap(table.rows, size.pinned_N, size.unpinned))
    return cached
