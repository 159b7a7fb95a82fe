"""A callback of `fit` that logs how well the caches of tables work."""

from __future__ import annotations

import collections
from typing import Any

import keras

from ...tables.read_through import ReadThroughTable
from ..tables.table_variable import TableVariable


class TableMetrics(keras.callbacks.Callback):
    """Log how well the caches of layers with `hot_rows` work, at the end of each epoch of `fit`.

    The metrics are sums over all such layers, for batches of `prefetch_rows`. Give this callback
    before `keras.callbacks.TensorBoard`, which then writes them too.

    - `cache_hit_rate`: the fraction of look-ups whose row was cached before it was prefetched.
    - `cache_bytes`: the bytes loaded and evicted in a step, optimizer state included.
    - `cache_evictions`: the rows that were evicted in the epoch.
    - `cache_rows`: the rows in the caches at its end.
    """

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Set the counts of the tables to 0, and note the number of steps so far.

        Args:
            epoch: The number of the epoch; not used.
            logs: The logs; not used.
        """
        self._first_step = int(self.model.optimizer.iterations.numpy())
        for table in self._tables():
            table.counts.clear()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Add the metrics of the epoch to the logs, unless no table has a cache.

        Args:
            epoch: The number of the epoch; not used.
            logs: The logs to add to; None to do nothing.
        """
        tables = self._tables()
        if logs is None or not tables:
            return
        counts: collections.Counter[str] = collections.Counter()
        for table in tables:
            counts.update(table.counts)
            moved = table.counts["loaded"] + table.counts["evicted"]
            counts["bytes"] += moved * table.row_bytes()
        steps = int(self.model.optimizer.iterations.numpy()) - self._first_step
        logs["cache_hit_rate"] = 1 - counts["missed"] / max(counts["looked_up"], 1)
        logs["cache_bytes"] = counts["bytes"] / max(steps, 1)
        logs["cache_evictions"] = counts["evicted"]
        logs["cache_rows"] = sum(table.cached_rows() for table in tables)

    def _tables(self) -> list[ReadThroughTable]:
        """Return the tables of the model that have a cache."""
        tables = [v.table for v in self.model.variables if isinstance(v, TableVariable)]
        return [table for table in tables if isinstance(table, ReadThroughTable)]
