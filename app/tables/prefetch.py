"""The prefetching of rows of tables that are elsewhere into their device cache; see `cached`.

Steps are grouped into chunks. While one chunk trains, a thread looks up the ids of the next chunk
and reads the rows that the cache misses. Between two chunks, rows are evicted and loaded. The
evicted rows are written back while the next chunk trains. The thread makes one read or write at a
time, so that a row is always written back before it is read again.

The thread knows the position of each row in the cache before the steps begin. Where all steps look
up the same number of ids, they are given these positions, and train on the cache as on any table in
the memory of the device.
"""

from __future__ import annotations

import collections
import concurrent.futures
import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..system.xla import copy_to_device
from ..types import HOST, LocatedData
from .base import Table
from .cached import NONE, CachedTable, CacheMap, CachePlan, CacheSize, LoadedRows
from .device import InPlace, find_elsewhere


class Call(NamedTuple):
    """The lookups of one batch.

    Attributes:
        ids: The ids that it looks up and that are not pinned, by table; ids may repeat.
        ids_SN: All ids that each of its steps looks up, by table, where all steps look up the same
            number of ids.
        looked_up: The number of ids that it looks up in all tables, pinned and repeated ids too.
    """

    item: tuple[int, Any]
    ids: dict[str, np.ndarray]
    ids_SN: dict[str, np.ndarray]
    looked_up: int


class Chunk(NamedTuple):
    """The batches whose rows are in the cache together.

    Attributes:
        plans: The rows to evict and to load before them, by table.
        counts: `looked_up` has the number of ids that the steps look up, and `missed` the number
            of them that are not in the cache; repeated ids count each time.
    """

    items: list[tuple[int, Any]]
    plans: dict[str, CachePlan]
    loaded: dict[str, LoadedRows]
    counts: dict[str, int]


class PlannedChunk:
    """A chunk that the thread prepares, to be applied to the caches exactly once."""

    def __init__(self, future: concurrent.futures.Future, apply: Callable[[Chunk], None]):
        self._prepared, self._apply = future, apply
        self._applied: concurrent.futures.Future = concurrent.futures.Future()

    def applied(self) -> Chunk:
        """Wait for the chunk, apply it in the first call, and return it without plans and rows.

        Errors of the preparation and of `apply` are raised here, those of `apply` in every call: a
        chunk that was applied in part must not be applied again.
        """
        if not self._applied.done():
            chunk = self._prepared.result()
            try:
                self._apply(chunk)
                self._applied.set_result(chunk._replace(plans={}, loaded={}))
            except Exception as error:
                self._applied.set_exception(error)
            del self._prepared  # and the rows that it holds
        return self._applied.result()

    def settle(self) -> None:
        """Wait for the chunk, and apply it unless that was done or its preparation failed."""
        if self._applied.done() or self._prepared.exception() is None:
            self.applied()


class CacheTooSmallError(ValueError):
    """The steps of one call need more rows than the cache holds beside its pinned rows."""

    def __init__(self, table: str, needed: int, size: int):
        super().__init__(
            f"the steps of one call need {needed:,} rows of {table}, and its cache has {size:,}"
        )
        self.table, self.needed, self.size = table, needed, size


# Called as `lookups(batch, step)` with the number of steps before the batch, an int64 scalar.
# Returns for each cached table the ids of all lookups of the batch, with repetitions: (S, N) if all
# steps look up the same number of ids, otherwise (N,). `NONE` is no id: it is padding.
Lookups = Callable[[Any, tf.Tensor], Mapping[str, tf.Tensor]]


class Prefetcher(InPlace):
    """Prefetches the rows of tables that are elsewhere into their device cache, by one thread.

    Training gives the same rows as with tables on the device, bit for bit. Tables with lookups are
    cached; tables that a loss streams are trained where they are, unless all rows are pinned.
    A cache of all rows has each at the position of its id, so the steps train on it as a table.
    Several iterations of `prefetch` can share the caches, also those of several prefetchers, if one
    thread advances them all.

    Args:
        tables: The tables by name: cached tables, and tables to be cached in the first chunk.
        lookups: Gives the ids that a batch needs.
        calls_per_chunk: The number of batches in a chunk. A chunk is shorter if its rows do not fit
            into the cache.
        together: A chunk has a multiple of this number of batches, except for the last one of an
            iteration. `calls_per_chunk` is such a multiple.
        is_shared: Whether steps also read the backing tables. Evicted rows are then written back
            before the next step.
        cache_sizes: The sizes of the caches of tables that are to be cached, by name. The thread
            makes the caches.

    Attributes:
        tables: The tables that the steps train on; complete once the first batch is there. For
            tables whose positions the steps are given these are the caches.
    """

    looks_up = True

    def __init__(
        self,
        tables: Mapping[str, Table],
        lookups: Lookups,
        device: str,
        calls_per_chunk: int,
        steps_per_batch: int = 1,
        together: int = 1,
        is_shared: bool = False,
        cache_sizes: Mapping[str, CacheSize] = {},
    ):
        super().__init__(tables)
        self._lookups, self._cache_sizes, self._device = lookups, cache_sizes, device
        self._calls_per_chunk, self._together = calls_per_chunk, together
        self._steps, self._is_shared = steps_per_batch, is_shared
        self._cached = {n: table for n, table in tables.items() if isinstance(table, CachedTable)}
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

        Yields:
            Pairs of an epoch and a batch; batches are `LocatedData` if the steps are given the
            positions of their rows in the caches.

        Raises:
            CacheTooSmallError: The rows of the batches of one call do not fit into a cache.
        """
        calls: list[Call] = []
        batches = iter(batches)
        following, is_first = self._plan(batches, calls, step), True
        while True:
            began = time.perf_counter()
            chunk = following.applied()
            if not chunk.items:
                return
            step += len(chunk.items) * self._steps
            self._counts.update(chunk.counts, steps=len(chunk.items) * self._steps)
            self._counts["stalled"] += time.perf_counter() - began  # type: ignore[assignment]
            items = iter(chunk.items)
            if is_first:  # while it is traced, no thread may make tensors: `renumber_functions`
                yield next(items)
                is_first = False
            following = self._plan(batches, calls, step)
            yield from items

    def write_back(self) -> None:
        """Wait for the thread, then write all cached rows back to their tables.

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
        """Drop the waiting work of the thread, and wait for its end; no row is written back."""
        self._thread.shutdown(cancel_futures=True)

    def _plan(self, batches: Iterator, calls: list[Call], step: int) -> PlannedChunk:
        """Let the thread prepare the next chunk, and note it as `planned` in the cached tables.

        The chunk that was planned last, also one of another iteration, is applied first.
        """
        for table in self._cached.values():
            if table.planned is not None:
                table.planned.settle()
        versions = {name: table.version() for name, table in self._cached.items()}
        future = self._thread.submit(self._make_chunk, batches, calls, step)
        planned = PlannedChunk(future, functools.partial(self._apply, versions))
        for table in self._cached.values():
            table.planned = planned
        return planned

    def _apply(self, versions: Mapping[str, int], chunk: Chunk) -> None:
        """Evict and load the rows of a chunk, and count them; the thread writes evicted rows back.

        The versions were taken between two steps, before the rows were read. If a step has written
        to the backing table since, the rows are read again.
        """
        self._check_writes()
        for name, plan in chunk.plans.items():
            table, loaded = self._cached[name], chunk.loaded[name]
            if table.version() != versions.get(name, 0):
                loaded = table.load(plan)
            evicted = table.apply(plan, loaded)
            self._writes.append(self._thread.submit(table.write_back, plan.evicted_ids_N, evicted))
            rows = {"evicted": len(plan.evicted_ids_N), "loaded": len(plan.loaded_ids_M)}
            table.counts.update(rows)
            self._counts["bytes"] += sum(rows.values()) * table.row_bytes()
        if self._is_shared:
            concurrent.futures.wait(self._writes)
            self._check_writes()

    def _check_writes(self) -> None:
        """Raise the error of a finished write of evicted rows, if there is one; wait for none."""
        done = [write for write in self._writes if write.done()]
        self._writes = [write for write in self._writes if not write.done()]
        for write in done:
            write.result()

    def _make_chunk(self, batches: Iterator, calls: list[Call], step: int) -> Chunk:
        """Take the next batches whose rows fit into the cache together, and read missing rows.

        It runs in the thread. It updates the cache maps and the counts of the tables, but not the
        cache; the first call makes the caches. The chunk has no items if there is no batch left.
        Raises CacheTooSmallError as `_fit` does.

        Args:
            calls: The lookups of batches that were taken before and are in no chunk. The list is
                changed: the lookups of batches that do not fit stay in it for the next chunk.
        """
        if not self._cached:
            for name, size in self._cache_sizes.items():
                cache_map = CacheMap(self.tables[name].rows, size.pinned_N, size.unpinned)
                self._cached[name] = CachedTable(self.tables[name], self._device, cache_map)
            self.tables.update(self._cached)
            self.tables.update({name: self._cached[name].cache for name in self._whole()})
        while len(calls) < self._calls_per_chunk:
            item = next(batches, None)
            if item is None:
                break
            calls.append(self._look_up(item, step + len(calls) * self._steps))
        if not calls:
            return Chunk([], {}, {}, {})
        count, ids, plans = self._fit(calls)
        taken, calls[:] = calls[:count], calls[count:]
        loaded, missed = {}, 0
        for name, table in self._cached.items():
            misses = len(table.cache_map.misses(ids[name]))
            missed += misses
            table.counts.update(looked_up=len(ids[name]), missed=misses)
            loaded[name] = table.load(plans[name])
        for name, table in self._cached.items():
            table.cache_map.apply(plans[name], ids[name])
        counts = {"looked_up": sum(call.looked_up for call in taken), "missed": missed}
        return Chunk([self._locate_call(call) for call in taken], plans, loaded, counts)

    def _fit(self, calls: list[Call]) -> tuple[int, dict[str, np.ndarray], dict[str, CachePlan]]:
        """Return how many first batches fit into the caches together, their ids and plans by table.

        Raises CacheTooSmallError if not even those fit that have to be together.
        """
        least = min(self._together, len(calls))
        shorter = range((len(calls) - 1) // least * least, 0, -least)
        for count in (len(calls), *shorter):
            taken = calls[:count]
            ids = {n: np.concatenate([call.ids[n] for call in taken]) for n in self._cached}
            plans = {n: table.cache_map.plan(ids[n]) for n, table in self._cached.items()}
            small = next((name for name, plan in plans.items() if plan is None), None)
            if small is None:
                return count, ids, plans
        needed, table = len(np.unique(ids[small])), self._cached[small]
        raise CacheTooSmallError(small, needed, table.cache_map.unpinned)

    def _look_up(self, item: tuple[int, Any], step: int) -> Call:
        """Return the lookups of an item, an epoch and a batch; `step` steps are before it."""
        with tf.device(HOST):
            lookups = self._lookups(item[1], tf.constant(step, tf.int64))
        # A table that is only streamed has no lookups.
        ids = {n: lookups[n].numpy() if n in lookups else np.zeros(0, int) for n in self._cached}
        unpinned = {n: self._cached[n].cache_map.drop_pinned(ids[n][ids[n] != NONE]) for n in ids}
        ids_SN = {n: ids[n] for n in ids if ids[n].ndim > 1 and n not in self._whole()}
        looked_up = sum(np.count_nonzero(array != NONE) for array in ids.values())
        return Call(item, unpinned, ids_SN, looked_up)

    def _locate_call(self, call: Call) -> tuple[int, Any]:
        """Return the epoch and the batch of a call, the batch with the positions of its rows.

        The tables of these rows become the caches in `tables`. If all tables are then on the device
        of the steps, the batch is copied there, as XLA can compile the steps.
        """
        epoch, located = call.item
        self.tables.update({name: self._cached[name].cache for name in call.ids_SN})
        with tf.device(HOST):
            rows = {
                name: tf.constant(self._cached[name].cache_map.positions(ids_SN))
                for name, ids_SN in call.ids_SN.items()
            }
        located = LocatedData(located, rows) if rows else located
        if find_elsewhere(self.tables) is None:
            to_device = functools.partial(copy_to_device, device=self._device)
            located = tf.nest.map_structure(to_device, located)
        return epoch, located

    def _whole(self) -> set[str]:
        """Return the names of the tables that a run trains in a cache of all their rows."""
        sizes = self._cache_sizes.items()
        return {name for name, size in sizes if len(size.pinned_N) == self.tables[name].rows}
