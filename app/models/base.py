"""What a training step knows of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import tensorflow as tf

from ..losses.base import Part
from ..tables.base import TableSpec
from ..types import Batch, Rows


class Outcome(NamedTuple):
    """What a batch gives.

    total: the loss to differentiate, summed over examples, of the rows that were looked up.
    examples: their number. Both are float32 scalars. parts: the loss of rows that are streamed, to
    be added to it. state: of tables that are not trained, new rows for those that were looked up.
    """

    total: tf.Tensor
    examples: tf.Tensor
    parts: Sequence[Part] = ()
    state: Mapping[str, tf.Tensor] = {}


class Model(Protocol):
    """A model names tables and never sees them."""

    def tables(self) -> dict[str, TableSpec]:
        """The tables, by name."""
        ...

    def lookups(self, batch: Batch) -> dict[str, tf.Tensor]:
        """The ids that the batch needs of each table, of any shape, repeated as they come."""
        ...

    def loss(self, batch: Batch, rows: dict[str, Rows]) -> Outcome | tuple[tf.Tensor, tf.Tensor]:
        """The outcome of a batch, or just the first two fields of it.

        rows: for each lookup, its distinct rows and where each id's row is among them.
        """
        ...
