"""A cache on the device for a table whose rows are in host memory, in a file or on other devices.

The table that stores all rows is the backing table. Some ids are pinned: their rows stay in the
cache. The rows of other ids are loaded when they are needed, and evict rows that were not needed
for longest. A row that is cached is read and written in the cache only, any other row in the
backing table only, so no read is stale.

A `CacheMap` decides which rows to load and evict. A `CachedTable` holds the rows, in a
`DeviceTable`. Steps that are given the positions of their ids in the cache train on that table
alone, so XLA can compile them (see `prefetch`). Other steps find rows by a variable from ids to
positions, 4 bytes an id. The variable is in host memory, where steps prepare their ids (see
`lexrow.types.HOST`). There it takes no memory of the device. Steps that XLA compiles cannot reach
it, and have a copy on their device; they read and write cached rows only (see `cached_rows_only`).

A run loads all rows that a chunk of steps needs. A Keras model can be called on any batch, so its
table is shared: rows that are not cached are read and written in the backing table.
"""

from __future__ import annotations

import collections
import contextlib
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..system.scoped import Scoped
from ..system.xla import under_xla
from ..types import HOST
from .arrays import row_slices
from .base import Ids, Layout, LocatedIds, Slot, Table
from .device import PreparedValues, make_cache

NONE = -1  # the position of an id that is not cached, and the id of a free position
_ROWS = ""  # the key of the rows themselves, beside the names of slots

_cached_only = Scoped(False)


def cached_rows_only() -> contextlib.AbstractContextManager:
    """Let XLA compile look-ups of cached rows in code that is traced in the block.

    A compiled step reads NaN for a row that is not cached, and does not write it. So the caller
    sees to it that the step is given only ids whose rows are cached (see `CachedTable.has_all`).
    """
    return _cached_only.set(True)


def is_cached_only() -> bool:
    """Return whether the code runs in a block of `cached_rows_only`."""
    return _cached_only.get()


class CachePlan(NamedTuple):
    """The rows to evict from a cache, and then the rows to load into it.

    Attributes:
        evicted_positions_N: The positions that they leave, int32.
        loaded_positions_M: The positions that they take, int32.
    """

    evicted_ids_N: np.ndarray
    evicted_positions_N: np.ndarray
    loaded_ids_M: np.ndarray
    loaded_positions_M: np.ndarray

    def moves(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of all these rows, int64, and their positions after it, int32."""
        none_N = np.full(len(self.evicted_ids_N), NONE, np.int32)
        return (
            np.concatenate([self.evicted_ids_N, self.loaded_ids_M]),
            np.concatenate([none_N, self.loaded_positions_M]),
        )


class CacheMap:
    """The position of each cached id, for one chunk of steps after another. It holds no rows.

    Args:
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
        """Return the ids that are not pinned, in their order, repeated ids included."""
        if self._pinned_are_first:  # a comparison is ten times as fast as a look-up
            return ids_N[ids_N >= len(self.pinned_N)]
        positions_N = self._positions_V[ids_N]
        return ids_N[(positions_N == NONE) | (positions_N >= len(self.pinned_N))]

    def misses(self, ids_N: np.ndarray) -> np.ndarray:
        """Return the ids that are not cached, in their order, repeated ids included."""
        return ids_N[self._positions_V[ids_N] == NONE]

    def positions(self, ids: np.ndarray) -> np.ndarray:
        """Return the position of each id, `NONE` for one that is not cached."""
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
        # With counts, NumPy (from 2.3) sorts; without them it hashes, which takes 20 times as long.
        loaded_ids_M = np.unique(ids_N[positions_N == NONE], return_counts=True)[0].astype(np.int64)
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
        """Record that the rows of a plan are evicted and loaded, and that a new chunk needs ids."""
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
        moves: As `CachePlan.moves`, with uint32 positions (see `PreparedValues`).
    """

    rows: Mapping[str, tf.Tensor]
    evicted_positions_N: tf.Tensor
    loaded_positions_M: tf.Tensor
    moves: tuple[tf.Tensor, tf.Tensor]


class CachedRows(tf.Module):
    """The rows of a table or of a slot, some of them cached, as a `tables.base.Table`.

    A table that is not shared has all rows in its cache that steps need: on a CPU TensorFlow raises
    for any other id. So has one that is shared where XLA compiles the step (see
    `cached_rows_only`).

    Args:
        device: The device of the steps and of the cache.
        size: The number of rows of the cache.
        positions_V: From ids to positions; slots share it with their table.
        writes: Counts how often a step wrote to the backing table of a table or of a slot of it.
        is_shared: Whether steps also read and write rows that are not cached, in the backing table.

    Attributes:
        cache: The cached rows by position, with the cached rows of the slots.
        flush: Writes all cached rows, also those of all other slots, to the backing tables; a slot
            of a table that is not shared has none.
    """

    slots: dict[str, CachedRows]
    flush: Callable[[], None]

    def __init__(
        self,
        backing: Table,
        device: str,
        size: int,
        positions_V: PreparedValues,
        writes: tf.Variable,
        is_shared: bool,
    ):
        super().__init__()
        self.backing, self.device, self.slots = backing, device, {}
        self.rows, self.columns = backing.rows, backing.columns
        self._positions_V, self._writes, self._is_shared = positions_V, writes, is_shared
        with tf.device(device):
            self.cache = make_cache(backing, size)

    def locate(self, ids_U: Ids) -> LocatedIds:
        """Look up the positions of ids in the cache, -1 if not cached; see `Table.locate`.

        Under XLA the position of an id that is not cached, or is no row, is out of range.
        """
        if isinstance(ids_U, LocatedIds):
            return ids_U
        positions_V = self._positions_V.read()
        with tf.device(HOST):
            positions_U = tf.raw_ops.ResourceGather(
                resource=positions_V.handle, indices=ids_U, dtype=positions_V.dtype
            )
        if under_xla():
            positions_U = tf.bitcast(positions_U, tf.int32)
            wide_U = tf.cast(ids_U, tf.int64)  # the rows may be more than int32 holds
            is_cached_U = (wide_U >= 0) & (wide_U < self.rows) & (positions_U >= 0)
            positions_U = tf.where(is_cached_U, positions_U, self.cache.rows)
        return LocatedIds(ids_U, positions_U)

    def gather(self, ids_U: Ids) -> tf.Tensor:
        """Return rows, from the cache if they are cached, else from the backing table."""
        located = self.locate(ids_U)
        ids_U, positions_U = located.ids_U, located.rows
        if under_xla():  # which takes the nearest row for a position out of range
            is_cached_U1 = positions_U[:, tf.newaxis] < self.cache.rows
            return tf.where(is_cached_U1, self.cache.gather(positions_U), math.nan)
        if not self._is_shared:
            return self.cache.gather(positions_U)

        def gather_both() -> tf.Tensor:
            """Return the rows of all ids, each from the cache or from the backing table."""
            cached_N, positions_N, missed_M, ids_M = _split(located)
            rows_ND, rows_MD = self.cache.gather(positions_N), self.backing.gather(ids_M)
            return tf.dynamic_stitch([cached_N, missed_M], [rows_ND, rows_MD])

        rows_UD = tf.cond(
            _all_cached(positions_U), lambda: self.cache.gather(positions_U), gather_both
        )
        return tf.ensure_shape(rows_UD, (ids_U.shape[0], self.columns))

    def assign(self, ids_U: Ids, rows_UD: tf.Tensor) -> None:
        """Replace rows, in the cache if they are cached, else in the backing table.

        Writes to the backing table change `version`.
        """
        located = self.locate(ids_U)
        positions_U = located.rows
        if not self._is_shared or under_xla():  # which drops a row at a position out of range
            self.cache.assign(positions_U, rows_UD)
            return

        def assign_cached() -> tf.Tensor:
            """Write all rows to the cache; the result is True, because tf.cond needs one."""
            self.cache.assign(positions_U, rows_UD)
            return tf.constant(True)

        def assign_both() -> tf.Tensor:
            """Write each row to the cache or the backing table, count a write, and return True."""
            cached_N, positions_N, missed_M, ids_M = _split(located)
            self.cache.assign(positions_N, tf.gather(rows_UD, cached_N))
            self.backing.assign(ids_M, tf.gather(rows_UD, missed_M))
            with tf.device(HOST):
                self._writes.assign_add(1)
            return tf.constant(True)

        tf.cond(_all_cached(positions_U), assign_cached, assign_both)

    def bytes(self) -> int:
        """Return the bytes that the cache takes on the device, slots included."""
        return self.cache.bytes()

    def is_finite(self) -> bool:
        """Return whether every number of the cached rows is finite; slots are not read."""
        return self.cache.is_finite()

    def layout(self) -> Layout:
        """Return how a checkpoint holds the backing table."""
        return self.backing.layout()


class CachedTable(CachedRows):
    """A table with a cache of some of its rows, and of the same rows of its slots.

    Args:
        device: The device of the steps and of the cache.
        cache_map: A map that no other table uses; its pinned rows are loaded.
        is_shared: Whether steps also read and write rows that are not cached (see `CachedRows`).

    Attributes:
        planned: The chunk that was planned last, if any (see `tables.prefetch`).
        counts: For metrics of this table alone: ids that were `looked_up` by prefetched batches and
            are not pinned, `missed` ones among them, and rows `loaded` and `evicted`.
        lacks_prefetch: Whether nothing loads rows into the cache, and no log line has said so.
    """

    planned: Any = None
    lacks_prefetch = True

    def __init__(self, backing: Table, device: str, cache_map: CacheMap, is_shared: bool = False):
        pinned_N = cache_map.pinned_N.astype(np.int64)
        positions_V = PreparedValues(lambda: tf.fill([backing.rows], NONE))
        with tf.device(HOST):
            writes = tf.Variable(tf.zeros([], tf.int64), trainable=False)
        size = len(pinned_N) + cache_map.unpinned
        super().__init__(backing, device, size, positions_V, writes, is_shared)
        self.cache_map = cache_map
        self.counts: collections.Counter[str] = collections.Counter()
        self._ids_P = np.full(size, NONE, np.int64)  # the id at each position
        self._cache_slots(backing.slots)
        nothing = np.zeros(0, np.int64)
        for part in row_slices(len(pinned_N), self._total_columns()):
            positions = np.arange(part.start, part.stop, dtype=np.int32)
            plan = CachePlan(nothing, nothing.astype(np.int32), pinned_N[part], positions)
            self.apply(plan, self.load(plan))

    def add_slots(self, slots: Mapping[str, Slot]) -> None:
        """Make further slots in the backing table, and cache those of the cached rows.

        This changes `version`: a chunk that was loaded before lacks the new slots.
        """
        self.backing.add_slots(slots)
        self._cache_slots(slots)
        self._writes.assign_add(1)

    def load(self, plan: CachePlan) -> LoadedRows:
        """Read rows of the backing table and of its slots, and copy them to the device.

        The cache does not change; `apply` puts the rows into it. It needs no further copy to the
        device, for which it would have to wait until the device has made all earlier steps.
        """
        with tf.device(HOST):
            ids_M = tf.constant(plan.loaded_ids_M)
            rows = {name: table.backing.gather(ids_M) for name, table in self._with_slots().items()}
        ids_K, positions_K = plan.moves()
        with tf.device(self.device):
            return LoadedRows(
                {name: tf.identity(rows_MD) for name, rows_MD in rows.items()},
                # TensorFlow would leave int32 in the memory of the host.
                tf.constant(plan.evicted_positions_N, tf.int64),
                tf.constant(plan.loaded_positions_M, tf.int64),
                (tf.constant(ids_K), tf.constant(positions_K.view(np.uint32))),
            )

    def apply(self, plan: CachePlan, loaded: LoadedRows) -> dict[str, tf.Tensor]:
        """Replace the evicted rows of a plan by the loaded rows. Call this between two steps.

        The backing table is not written: give the result to `write_back`. `cache_map` is not
        changed.

        Returns:
            The evicted rows, by the names that `load` uses.
        """
        with tf.device(self.device):
            evicted = self._gather_positions(loaded.evicted_positions_N)
            for name, table in self._with_slots().items():
                table.cache.assign_exact(loaded.loaded_positions_M, loaded.rows[name])
        self._positions_V.scatter(plan.moves(), loaded.moves)
        self._ids_P[plan.evicted_positions_N] = NONE
        self._ids_P[plan.loaded_positions_M] = plan.loaded_ids_M
        return evicted

    def write_back(self, ids_N: np.ndarray, rows: Mapping[str, tf.Tensor]) -> None:
        """Write evicted rows to the backing table and its slots, without rounding them again."""
        with tf.device(HOST):
            for name, table in self._with_slots().items():
                table.backing.assign_exact(tf.constant(ids_N), rows[name])

    def flush(self) -> None:
        """Write all cached rows and slots to the backing table. They stay in the cache, too."""
        positions = self._used_positions()
        for part in row_slices(len(positions), self._total_columns()):
            with tf.device(self.device):
                rows = self._gather_positions(tf.constant(positions[part]))
            self.write_back(self._ids_P[positions[part]], rows)
        for table in self._with_slots().values():
            if table.backing.is_stochastic:
                table.backing.writes.assign(table.cache.writes)

    def has_all(self, ids_N: tf.Tensor) -> tf.Tensor:
        """Return whether the rows of all given ids are cached, a bool in host memory.

        Call it where XLA does not compile the code.
        """
        return _all_cached(self.locate(ids_N).rows)

    def version(self) -> int:
        """Return a number that rises when a step writes to the backing table, or slots are added.

        A table and its slots share it.
        """
        return int(self._writes)

    def row_bytes(self) -> int:
        """Return the bytes that a row and its slots take when they are moved, as float32."""
        return tf.float32.size * self._total_columns()

    def cached_rows(self) -> int:
        """Return the number of rows that are in the cache now."""
        return len(self._used_positions())

    def _cache_slots(self, names: Iterable[str]) -> None:
        """Make the caches of slots of the backing table, and load those of the cached rows."""
        positions, shared = self._used_positions(), (self._positions_V, self._writes)
        for name in names:
            slot = CachedRows(
                self.backing.slots[name], self.device, len(self._ids_P), *shared, self._is_shared
            )
            if self._is_shared:  # else no cycle of references, so that memory is freed at once
                slot.flush = self.flush
            for part in row_slices(len(positions), slot.columns):
                rows_ND = slot.backing.gather(tf.constant(self._ids_P[positions[part]]))
                slot.cache.assign_exact(tf.constant(positions[part]), rows_ND)
            self.slots[name], self.cache.slots[name] = slot, slot.cache

    def _used_positions(self) -> np.ndarray:
        """Return the positions that have a row, int32."""
        return np.flatnonzero(self._ids_P != NONE).astype(np.int32)

    def _total_columns(self) -> int:
        """Return the columns of a row and of all its slots together."""
        return sum(table.columns for table in self._with_slots().values())

    def _with_slots(self) -> dict[str, CachedRows]:
        """Return the slots by name, and this table under the name ""."""
        return {_ROWS: self, **self.slots}

    def _gather_positions(self, positions: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the cached rows at the given positions, by the names of `_with_slots`."""
        return {name: table.cache.gather(positions) for name, table in self._with_slots().items()}


def _all_cached(positions_U: tf.Tensor) -> tf.Tensor:
    """Return whether all positions are those of cached rows, as a tensor in host memory."""
    with tf.device(HOST):
        return tf.reduce_all(positions_U >= 0)


def _split(located: LocatedIds) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Split located ids into those whose row is cached and the others, in host memory.

    Returns:
        The indices and the positions of the cached ids, then the indices and the ids of the others.
    """
    with tf.device(HOST):
        is_cached_U = located.rows >= 0
        indices_U = tf.range(tf.size(is_cached_U))
        cached_N = tf.boolean_mask(indices_U, is_cached_U)
        missed_M = tf.boolean_mask(indices_U, tf.logical_not(is_cached_U))
        positions_N, ids_M = tf.gather(located.rows, cached_N), tf.gather(located.ids_U, missed_M)
        return cached_N, positions_N, missed_M, ids_M
