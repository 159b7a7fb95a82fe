"""The stage between batches and steps where no rows have to be brought to the steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from .base import Table


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
