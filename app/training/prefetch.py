"""The prefetching of rows of host tables into their device cache (see `tables.cached`).

Steps are grouped into chunks. While one chunk trains, a thread looks up the ids of the next chunk
and reads the rows that the cache misses. Between two chunks, rows are evicted and loaded. The
evicted rows are written back while the next chunk trains. The thread makes one read or write at a
time, so that a row is always written back before it is read again.
"""

from __future__ import annotations

import collections
import concurrent.futures
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..models.base import Model
from ..tables.base import Table
from ..tables.cached import CachedTable, CacheMap, CachePlan
from .cache_size import CacheSize, calls_per_chunk
from .step import lookup_function


class InPlace:
    """Prefetches nothing: the steps train on the tables themselves.

    Args:
        tables: The tables by name.

    Attributes:
        tables: The tables that the steps train on, by name.
    """

    def __init__(self, tables: Mapping[str, Table]):
        self.tables = dict(tables)

    def prefetch(self, batches: Iterable, step: int) -> Iterator:
        """Yield the batches as they are.

        Args:
            batches: Batches, each with its epoch.
            step: The number of steps before them; not used here.
        """
        return iter(batches)

    def locate(self, data: Any, first: tf.Tensor) -> Any:
        """Return a batch as the next call of the train function takes it; here unchanged.

        Args:
            data: The batch, a nest of tensors of S steps.
            first: The number of steps before it, an int64 scalar.
        """
        return data

    def write_back(self) -> None:
        """Do nothing: no row is cached."""

    def values(self) -> dict[str, float]:
        """Return no metrics."""
        return {}

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


class _Call(NamedTuple):
    """The lookups of one batch.

    Attributes:
        item: The epoch and the batch.
        ids: The ids that it looks up and that are not pinned, by table.
        looked_up: The number of ids that it looks up in all tables.
    """

    item: tuple[int, Any]
    ids: dict[str, np.ndarray]
    looked_up: int


class _Chunk(NamedTuple):
    """The batches whose rows are in the cache together.

    Attributes:
        items: The batches with their epochs.
        plans: The rows to evict and to load before them, by table.
        loaded: The values of the rows to load, by table (see `CachedTable.load`).
        counts: `looked_up` has the number of ids that the steps look up, and `missed` the number
            of unique ids among them that are not in the cache.
    """

    items: list[tuple[int, Any]]
    plans: dict[str, CachePlan]
    loaded: dict[str, dict[str, tf.Tensor]]
    counts: dict[str, int]


class Prefetcher(InPlace):
    """Prefetches the rows of host tables into their device cache, by one thread.

    Training gives the same rows as with tables on the device, bit for bit. Tables with lookups are
    cached; tables that a loss streams are trained in host memory.

    Args:
        model: Gives the lookups.
        tables: The tables in host memory or in a file, by name.
        seed: The seed of the run.
        device: The device of the steps.
        cache_sizes: The size of the cache of each table to cache, by name.
        stage_steps: The number of steps in a chunk, rounded up to whole calls. A chunk is shorter
            if its rows do not fit into the cache.
        steps_per_batch: The number of steps S in a call.
        micro_batches: The number of micro-batches in a step.

    Attributes:
        tables: The tables that the steps train on; complete once the first batch is there.
    """

    def __init__(
        self,
        model: Model,
        tables: Mapping[str, Table],
        seed: int,
        device: str,
        cache_sizes: Mapping[str, CacheSize],
        stage_steps: int,
        steps_per_batch: int,
        micro_batches: int = 1,
    ):
        super().__init__(tables)
        self._device, self._cache_sizes, self._steps = device, cache_sizes, steps_per_batch
        self._calls_per_chunk = calls_per_chunk(stage_steps, steps_per_batch)
        self._lookups = lookup_function(model, seed, micro_batches)
        self._cached: dict[str, CachedTable] = {}
        self._maps: dict[str, CacheMap] = {}
        self._calls: list[_Call] = []  # the next calls, whose ids are known
        self._writes: list[concurrent.futures.Future] = []
        # Since the last metrics: ids that were looked up, misses, steps, bytes loaded and evicted,
        # and the seconds in which the steps waited for rows.
        self._counts: collections.Counter[str] = collections.Counter()
        self._began = time.perf_counter()  # the time of the last metrics
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "prefetch")

    def prefetch(self, batches: Iterable, step: int) -> Iterator:
        """Yield each batch once its rows are in the cache.

        The batches are taken in a thread, up to a chunk ahead. Errors in the input, and in reading
        or writing rows, are raised here.

        Args:
            batches: Batches, each with its epoch.
            step: The number of steps before them.
        """
        batches = iter(batches)
        following = self._thread.submit(self._make_chunk, batches, step)
        while True:
            began = time.perf_counter()
            chunk = following.result()
            self._check_writes()
            self._apply(chunk)
            if not chunk.items:
                return
            step += len(chunk.items) * self._steps
            self._counts.update(chunk.counts, steps=len(chunk.items) * self._steps)
            self._counts["stalled"] += time.perf_counter() - began  # type: ignore[assignment]
            following = self._thread.submit(self._make_chunk, batches, step)
            yield from chunk.items

    def write_back(self) -> None:
        """Wait for the thread, then write all cached rows back to the host tables.

        Call it only between two steps. Errors of earlier writes are raised here.
        """
        self._thread.submit(int).result()  # the thread has then done all earlier work
        self._check_writes()
        for table in self._cached.values():
            table.flush()

    def values(self) -> dict[str, float]:
        """Return metrics since the last call of this method, and begin to count anew.

        Returns:
            stage_hit_rate: The fraction of lookups whose row was in the cache before its chunk.
            staged_bytes: The bytes loaded and evicted in a step.
            stage_stall: The fraction of the time in which the steps waited for rows.
        """
        counts, began, now = self._counts, self._began, time.perf_counter()
        self._counts, self._began = collections.Counter(), now
        return {
            "stage_hit_rate": 1 - counts["missed"] / max(counts["looked_up"], 1),
            "staged_bytes": counts["bytes"] / max(counts["steps"], 1),
            "stage_stall": counts["stalled"] / max(now - began, 1e-9),
        }

    def close(self) -> None:
        """Drop the waiting work of the thread, and wait for its end."""
        self._thread.shutdown(cancel_futures=True)

    def _apply(self, chunk: _Chunk) -> None:
        """Evict and load the rows of a chunk in the cache; the thread writes evicted rows back."""
        for name, plan in chunk.plans.items():
            table = self._cached[name]
            evicted = table.apply(plan, chunk.loaded[name])
            self._writes.append(self._thread.submit(table.write_back, plan.evicted_ids_N, evicted))
            rows = len(plan.evicted_ids_N) + len(plan.loaded_ids_M)
            self._counts["bytes"] += rows * table.row_bytes()

    def _check_writes(self) -> None:
        """Raise the error of a finished write of evicted rows, if there is one; wait for none."""
        done = [write for write in self._writes if write.done()]
        self._writes = [write for write in self._writes if not write.done()]
        for write in done:
            write.result()

    def _make_chunk(self, batches: Iterator, step: int) -> _Chunk:
        """Take the next batches whose rows fit into the cache together, and read missing rows.

        It runs in the thread. It updates the cache maps, but not the cache; the first call makes
        the caches. The chunk has no items if there is no batch left. `step`: the number of steps
        before the first batch that is not in an earlier chunk.
        """
        if not self._maps:
            self._make_caches()
        while len(self._calls) < self._calls_per_chunk:
            item = next(batches, None)
            if item is None:
                break
            self._calls.append(self._look_up(item, step + len(self._calls) * self._steps))
        if not self._calls:
            return _Chunk([], {}, {}, {})
        for count in range(len(self._calls), 0, -1):
            ids = _join_ids(self._calls[:count])
            plans = {name: cache_map.plan(ids[name]) for name, cache_map in self._maps.items()}
            if None not in plans.values():
                break
        else:
            raise AssertionError("the cache holds at least the rows of one call")
        calls, self._calls = self._calls[:count], self._calls[count:]
        loaded, missed = {}, 0
        for name, cache_map in self._maps.items():
            missed += len(cache_map.misses(ids[name]))
            cache_map.apply(plans[name], ids[name])
            loaded[name] = self._cached[name].load(plans[name].loaded_ids_M)
        counts = {"looked_up": sum(call.looked_up for call in calls), "missed": missed}
        return _Chunk([call.item for call in calls], plans, loaded, counts)

    def _look_up(self, item: tuple[int, Any], step: int) -> _Call:
        """Return the lookups of a batch; `step` is the number of steps before it."""
        with tf.device(self._device):
            lookups = self._lookups(item[1], tf.constant(step, tf.int64))
        ids = {name: lookups[name].numpy() for name in self._cache_sizes}
        unpinned = {name: self._maps[name].drop_pinned(ids[name]) for name in self._maps}
        return _Call(item, unpinned, sum(map(len, ids.values())))

    def _make_caches(self) -> None:
        """Make each cache and load its pinned rows, and let `tables` name the cached tables."""
        for name, size in self._cache_sizes.items():
            table = self._cached[name] = CachedTable(self.tables[name], self._device)
            self._maps[name] = CacheMap(table.rows, size.pinned_N, size.unpinned)
            table.allocate(self._maps[name])
        self.tables.update(self._cached)


def _join_ids(calls: list[_Call]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([call.ids[name] for call in calls]) for name in calls[0].ids}
