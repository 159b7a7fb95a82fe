"""A cached table whose steps may need any row, whether it is cached or not.

Rows of other ids than the cached ones are read from the backing table and written to it. So a
Keras model can be called on any batch, and rows that were loaded before a batch make it faster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from ..system.xla import under_xla
from ..types import HOST
from .base import Ids, LocatedIds, Slot, Table
from .cache_map import NONE, CacheMap
from .cached import CachedTable
from .row_reads import row_slices


class ReadThroughTable(CachedTable):
    """A `CachedTable` that also reads and writes rows that are not cached.

    A row that is cached is read and written in the cache only, any other row in the backing table
    only. Under XLA, both are read for each id, so the backing table must be a variable.

    Args:
        backing: The table that stores all rows.
        device: The device of the steps and of the cache.
        size: The number of rows of the cache, at most all rows; none of them is pinned.

    Attributes:
        lacks_prefetch: Whether nothing loads rows into the cache, and no log line has said so.
    """

    lacks_prefetch = True

    def __init__(self, backing: Table, device: str, size: int):
        with tf.device(HOST):
            # How often a step wrote to the backing table or to that of a slot.
            self._writes = tf.Variable(tf.zeros([], tf.int64), trainable=False)
        super().__init__(backing, device)
        nothing = np.zeros(0, np.int64)
        self.allocate(CacheMap(self.rows, nothing, min(size, self.rows)))

    def add_slots(self, slots: Mapping[str, Slot]) -> None:
        """Make further slots in the backing table, and cache those of the cached rows.

        This changes `version`.

        Args:
            slots: The new slots by name.
        """
        self.backing.add_slots(slots)
        positions = np.flatnonzero(self._ids_P != NONE).astype(np.int32)
        for name in slots:
            slot = self._cache_slot(self.backing.slots[name])
            slot._make_cache(len(self._ids_P))
            for part in row_slices(len(positions), slot.columns):
                rows_ND = slot.backing.gather(tf.constant(self._ids_P[positions[part]]))
                slot.cache.assign_exact(tf.constant(positions[part]), rows_ND)
            self.slots[name], self.cache.slots[name] = slot, slot.cache
        self._writes.assign_add(1)  # a chunk that was loaded before lacks the new slots

    def gather(self, ids_U: Ids) -> tf.Tensor:
        """Return rows, from the cache if they are cached, else from the backing table."""
        located = self.locate(ids_U)
        ids_U, positions_U = located.ids_U, located.rows
        if under_xla():  # which has no dynamic shapes
            cached_UD = self.cache.gather(tf.maximum(positions_U, 0))
            is_cached_U1 = positions_U[:, tf.newaxis] >= 0
            return tf.where(is_cached_U1, cached_UD, self.backing.gather(ids_U))

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
        if under_xla():
            self._assign_under_xla(located, rows_UD)
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

    def cached_rows(self) -> int:
        """Return the number of rows that are in the cache now."""
        return np.count_nonzero(self._ids_P != NONE)

    def version(self) -> int:
        """Return a number that rises when a step writes to the backing table, or slots are added.

        A table and its slots share it.
        """
        return int(self._writes)

    def _assign_under_xla(self, located: LocatedIds, rows_UD: tf.Tensor) -> None:
        """Replace rows as `assign` does, in a step that XLA compiles.

        Each row is given to both tables, to one of them at an index out of range: XLA drops that.
        An id that is no row (see `row_reads.unique`) is out of range in both.
        """
        is_row_U = located.ids_U < tf.cast(self.rows, located.ids_U.dtype)
        is_cached_U = tf.logical_and(is_row_U, located.rows >= 0)
        self.cache.assign(tf.where(is_cached_U, located.rows, self.cache.rows), rows_UD)
        self.backing.assign(
            tf.where(is_cached_U, tf.cast(self.rows, located.ids_U.dtype), located.ids_U), rows_UD
        )
        missed = tf.reduce_any(tf.not_equal(is_row_U, is_cached_U))
        self._writes.assign_add(tf.cast(missed, tf.int64))

    def _make_cache(self, rows: int) -> None:
        """Make `cache` as for `CachedTable`, with the count of writes of the backing table."""
        super()._make_cache(rows)
        if self.backing.is_stochastic:  # steps write to both, each with the next random draw
            self.cache.writes = self.backing.writes

    def _cache_slot(self, slot: Table) -> CachedTable:
        """Return a read-through table for a slot of the backing table, still without a cache."""
        return _ReadThroughSlot(slot, self.device, self._positions_V, self._writes, self.flush)


class _ReadThroughSlot(ReadThroughTable):
    """A slot of a `ReadThroughTable`, which shares its positions and its count of writes."""

    def __init__(
        self,
        backing: Table,
        device: str,
        positions_V: tf.Variable,
        writes: tf.Variable,
        flush: Callable[[], None],
    ):
        self._writes, self._flush_table = writes, flush
        CachedTable.__init__(self, backing, device, positions_V)

    def flush(self) -> None:
        """Write all cached rows, also those of other slots, to the backing tables."""
        self._flush_table()


def _all_cached(positions_U: tf.Tensor) -> tf.Tensor:
    """Return whether all positions are those of cached rows, as a tensor in host memory."""
    with tf.device(HOST):
        return tf.reduce_all(positions_U >= 0)


def _split(located: LocatedIds) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Split located ids into those whose row is cached and the others, in host memory.

    Args:
        located: The ids, with their positions in the cache.

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
