"""A table that marks the rows that are written."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..types import HOST
from .base import Ids, LocatedIds, Table


class MarkedTable:
    """Reads and writes the rows of another table, and marks the ids of the rows it writes.

    The rows of slots are written with the rows of their table, so they have no marks of their own.

    Args:
        marks_V: A bool variable in host memory with a mark for each row.
        device: The device of the rows, "" for the device that is current in a trace.
    """

    def __init__(self, table: Table, marks_V: tf.Variable, device: str):
        self._table, self._marks_V, self.device = table, marks_V, device

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the other table."""
        return getattr(self._table, name)

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
