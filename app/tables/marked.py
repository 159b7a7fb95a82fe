"""A table that marks the rows that are written."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from ..types import HOST
from .base import Ids, Layout, LocatedIds, Slot, Table


class MarkedTable:
    """Reads and writes the rows of another table, and marks the ids of the rows it writes.

    The rows of slots are written with the rows of their table, so they have no marks of their own.

    Args:
        marks_V: A bool variable in host memory with a mark for each row.
        device: The device of the rows, "" for the device that is current in a trace.
    """

    def __init__(self, table: Table, marks_V: tf.Variable, device: str):
        self._table, self._marks_V, self.device = table, marks_V, device
        self.rows, self.columns = table.rows, table.columns
        self.slots: Mapping[str, Table] = table.slots

    def locate(self, ids_U: Ids) -> Ids:
        """See `Table.locate`."""
        return self._table.locate(ids_U)

    def gather(self, ids_U: Ids) -> tf.Tensor:
        """See `Table.gather`."""
        return self._table.gather(ids_U)

    def assign(self, ids_U: Ids, rows_UD: tf.Tensor) -> None:
        """Mark the ids, then see `Table.assign`."""
        assert not isinstance(ids_U, LocatedIds)
        with tf.device(HOST):
            tf.raw_ops.ResourceScatterUpdate(
                resource=self._marks_V.handle,
                indices=ids_U,
                updates=tf.ones_like(ids_U, dtype=tf.bool),
            )
        self._table.assign(ids_U, rows_UD)

    def add_slots(self, slots: Mapping[str, Slot]) -> None:
        """See `Table.add_slots`."""
        self._table.add_slots(slots)

    def bytes(self) -> int:
        """See `Table.bytes`; the marks are not counted."""
        return self._table.bytes()

    def is_finite(self) -> bool:
        """See `Table.is_finite`."""
        return self._table.is_finite()

    def layout(self) -> Layout:
        """See `Table.layout`."""
        return self._table.layout()
