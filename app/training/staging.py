"""The prefetching of rows of host tables into their device cache (see `tables.cached`).

Steps are grouped into chunks. While one chunk trains, a thread looks up the ids of the next chunk
and reads the rows that the cache misses. Between two chunks, rows are evicted and loaded. The
evicted rows are written back while the next chunk trains. The thread makes one read or write at a
time, so that a row is always written back before it is read again.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
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
        self.tables = tables

    def prefetch(self, batches: Iterable, step: int) -> Iterator:
        """Yield the batches.

        Args:
            batches: Batches, each with its epoch.
            step: The number of steps before them.
        """
        return iter(batches)

    def locate(self, data: Any, first: tf.Tensor) -> Any:
        """Return a batch as the next call of the train function takes it.

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
        ids: The cold ids that it looks up, by table.
        looked_up: The number of ids that it looks up in all tables.
    """

    item: tuple[int, Any]
    ids: dict[str, np.ndarray]
    looked_up: int


class _Chunk(NamedTuple):
    """The batches whose rows are in the cache together.

    Attributes:
        items: The batches with their epochs.
        moves: The rows to evict and to load before them, by table.
        entering: The values of the rows to load, by table.
        looked_up: The number of ids that the steps look up.
        missed: The number of unique ids among them that are not in the cache.
    """

    items: list[tuple[int, Any]]
    moves: dict[str, CachePlan]
    entering: dict[str, dict[str, tf.Tensor]]
    looked_up: int = 0
    missed: int = 0


@dataclasses.dataclass
class _Since:
    """The counts since the last metrics.

    Attributes:
        looked_up: The number of ids that the steps look up.
        missed: The number of misses.
        bytes: The bytes moved to and from the device.
        stalled: The seconds in which the steps waited for rows.
        steps: The number of steps.
        began: The time at which the counts began.
    """

    looked_up: int = 0
    missed: int = 0
    bytes: int = 0
    stalled: float = 0.0
    steps: int = 0
    began: float = dataclasses.field(default_factory=time.perf_counter)


class Staging(InPlace):
    """Prefetches the rows of host tables into their device cache.

    The results are those of tables on the device, bit for bit. Tables with lookups are cached;
    tables that a loss streams are trained in host memory.

    Args:
        model: Gives the lookups.
        homes: The tables in host memory or in a file, by name.
        seed: The seed of the run.
        device: The device of the steps.
        rooms: The size of the cache of each table to cache, by name.
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
        homes: Mapping[str, Table],
        seed: int,
        device: str,
        rooms: Mapping[str, CacheSize],
        stage_steps: int,
        steps_per_batch: int,
        micro_batches: int = 1,
    ):
        super().__init__(dict(homes))
        self._homes, self._device, self._rooms = homes, device, rooms
        self._steps = steps_per_batch
        self._calls = calls_per_chunk(stage_steps, steps_per_batch)
        self._lookups = lookup_function(model, seed, micro_batches)
        self._staged: dict[str, CachedTable] = {}
        self._places: dict[str, CacheMap] = {}
        self._drawn: list[_Call] = []
        self._writes: list[concurrent.futures.Future] = []
        self._since = _Since()
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "staging")

    def prefetch(self, batches: Iterable, step: int) -> Iterator:
        """Yield each batch when its rows are in the cache.

        Errors in the input, and in reading or writing rows, are raised here.

        Args:
            batches: Batches, each with its epoch.
            step: The number of steps before them.
        """
        batches = iter(batches)
        following = self._thread.submit(self._chunk, batches, step)
        while True:
            began = time.perf_counter()
            chunk = following.result()
            self._check_writes()
            self._enter(chunk)
            if not chunk.items:
                return
            step += len(chunk.items) * self._steps
            self._since.steps += len(chunk.items) * self._steps
            self._since.looked_up += chunk.looked_up
            self._since.missed += chunk.missed
            self._since.stalled += time.perf_counter() - began
            following = self._thread.submit(self._chunk, batches, step)
            yield from chunk.items

    def write_back(self) -> None:
        """Write all cached rows back to the host tables; only between two steps."""
        self._thread.submit(int).result()  # the thread has then done all earlier work
        self._check_writes()
        for table in self._staged.values():
            table.flush()

    def values(self) -> dict[str, float]:
        """Return metrics since the last call of this method.

        Returns:
            stage_hit_rate: The fraction of lookups whose row was in the cache before its chunk.
            staged_bytes: The bytes moved to and from the device in a step.
            stage_stall: The fraction of the time in which the steps waited for rows.
        """
        since, self._since = self._since, _Since()
        seconds = max(self._since.began - since.began, 1e-9)
        return {
            "stage_hit_rate": 1 - since.missed / max(since.looked_up, 1),
            "staged_bytes": since.bytes / max(since.steps, 1),
            "stage_stall": since.stalled / seconds,
        }

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(cancel_futures=True)

    def _enter(self, chunk: _Chunk) -> None:
        """Evict and load rows, and have the evicted rows written back."""
        for name, moves in chunk.moves.items():
            table = self._staged[name]
            leaving = table.apply(moves, chunk.entering[name])
            self._writes.append(self._thread.submit(table.write_back, moves.evicted_ids_N, leaving))
            moved = len(moves.evicted_ids_N) + len(moves.loaded_ids_M)
            self._since.bytes += moved * table.row_bytes()

    def _check_writes(self) -> None:
        """Raise the errors of writing rows back."""
        done = [write for write in self._writes if write.done()]
        self._writes = [write for write in self._writes if not write.done()]
        for write in done:
            write.result()

    def _chunk(self, batches: Iterator, step: int) -> _Chunk:
        """Return the next batches whose rows fit into the cache together."""
        if not self._places:
            self._open()
        while len(self._drawn) < self._calls:
            item = next(batches, None)
            if item is None:
                break
            self._drawn.append(self._call(item, step + len(self._drawn) * self._steps))
        if not self._drawn:
            return _Chunk([], {}, {})
        for count in range(len(self._drawn), 0, -1):
            ids = _together(self._drawn[:count])
            moves = {name: places.plan(ids[name]) for name, places in self._places.items()}
            if None not in moves.values():
                break
        else:
            raise AssertionError("the cache holds at least the rows of one call")
        drawn, self._drawn = self._drawn[:count], self._drawn[count:]
        entering, missed = {}, 0
        for name, places in self._places.items():
            missed += len(places.misses(ids[name]))
            places.apply(moves[name], ids[name])
            entering[name] = self._staged[name].load(moves[name].loaded_ids_M)
        looked_up = sum(call.looked_up for call in drawn)
        return _Chunk([call.item for call in drawn], moves, entering, looked_up, missed)

    def _call(self, item: tuple[int, Any], step: int) -> _Call:
        """Return the lookups of a batch; `step` is the number of steps before it."""
        with tf.device(self._device):
            lookups = self._lookups(item[1], tf.constant(step, tf.int64))
        ids = {name: lookups[name].numpy() for name in self._rooms}
        cold = {name: places.drop_pinned(ids[name]) for name, places in self._places.items()}
        return _Call(item, cold, sum(map(len, ids.values())))

    def _open(self) -> None:
        """Create the caches."""
        for name, room in self._rooms.items():
            table = self._staged[name] = CachedTable(self._homes[name], self._device)
            self._places[name] = CacheMap(table.rows, room.hot_N, room.cold)
            table.allocate(self._places[name])
        self.tables.update(self._staged)


def _together(calls: list[_Call]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([call.ids[name] for call in calls]) for name in calls[0].ids}
