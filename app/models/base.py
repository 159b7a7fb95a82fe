"""What a training step knows of a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Protocol

import tensorflow as tf

from app.types import Batch, Rows


@dataclasses.dataclass(frozen=True)
class TableSpec:
    """The table that a model wants: V rows of D columns, and their initial values by shape."""

    rows: int
    columns: int
    initial: Callable[[tuple[int, int]], tf.Tensor]


class Model(Protocol):
    """A model names tables and never sees them."""

    def tables(self) -> dict[str, TableSpec]:
        """The tables to train, by name."""
        ...

    def lookups(self, batch: Batch) -> dict[str, tf.Tensor]:
        """The ids that the batch needs of each table, of any shape, repeated as they come."""
        ...

    def loss(self, batch: Batch, rows: dict[str, Rows]) -> tuple[tf.Tensor, tf.Tensor]:
        """The loss to differentiate, summed over examples, and their number: float32 scalars.

        rows: for each lookup, its distinct rows and where each id's row is among them.
        """
        ...
