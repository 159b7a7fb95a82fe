"""A chunk of batches whose rows are in a cache together (see `prefetch`)."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .cache_map import CachePlan
from .cached import LoadedRows


class Call(NamedTuple):
    """The lookups of one batch.

    Attributes:
        item: The epoch and the batch.
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
        items: The batches with their epochs.
        plans: The rows to evict and to load before them, by table.
        loaded: The rows to load, by table.
        counts: `looked_up` has the number of ids that the steps look up, and `missed` the number
            of them that are not in the cache; repeated ids count each time.
    """

    items: list[tuple[int, Any]]
    plans: dict[str, CachePlan]
    loaded: dict[str, LoadedRows]
    counts: dict[str, int]


class PlannedChunk:
    """A chunk that the thread prepares, to be applied to the caches exactly once.

    Args:
        future: Gives the chunk.
        apply: Evicts and loads the rows of the chunk.
    """

    def __init__(self, future: concurrent.futures.Future, apply: Callable[[Chunk], None]):
        self._future: concurrent.futures.Future | None = future
        self._apply = apply
        self._chunk: Chunk | None = None
        self._error: Exception | None = None

    def applied(self) -> Chunk:
        """Wait for the chunk, apply it in the first call, and return it without plans and rows.

        Errors of the preparation and of `apply` are raised here, those of `apply` in every call: a
        chunk that was applied in part must not be applied again.
        """
        if self._error is not None:
            raise self._error
        if self._chunk is None:
            chunk = self._future.result()
            try:
                self._apply(chunk)
            except Exception as error:
                self._error = error
                raise
            self._chunk, self._future = chunk._replace(plans={}, loaded={}), None
        return self._chunk

    def settle(self) -> None:
        """Wait for the chunk and apply it, unless that was done or its preparation failed."""
        if self._chunk is not None or self._future.exception() is None:
            self.applied()


class CacheTooSmallError(ValueError):
    """The steps of one call need more rows than the cache holds beside its pinned rows.

    Attributes:
        table: The name of the table.
        needed: The number of rows that they need.
        size: The number of rows that the cache holds.
    """

    def __init__(self, table: str, needed: int, size: int):
        super().__init__(
            f"the steps of one call need {needed:,} rows of {table}, and its cache has {size:,}"
        )
        self.table, self.needed, self.size = table, needed, size


def join_ids(calls: list[Call]) -> dict[str, np.ndarray]:
    """Return the ids of several batches one after the other, by table.

    Args:
        calls: The lookups of the batches, at least one.
    """
    return {name: np.concatenate([call.ids[name] for call in calls]) for name in calls[0].ids}
