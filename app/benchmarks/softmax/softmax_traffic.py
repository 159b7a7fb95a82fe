"""Count the rows and bytes that a step reads and writes."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from ...tables.device import DeviceTable


def totals() -> dict[str, tf.Variable]:
    """Return new counters at 0, int64: `rows` (written), `read_bytes` and `written_bytes`."""
    names = ("rows", "read_bytes", "written_bytes")
    return {name: tf.Variable(0, dtype=tf.int64, trainable=False) for name in names}


class Counting:
    """A table that adds its traffic to counters: bytes read and written, and rows written.

    Only `assign` counts rows, and only of a table that is no slot. The slots of the table are
    wrapped, too.

    Args:
        table: The table that has the rows.
        totals: The counters of `totals`, shared by all tables of a step.
        slot: Whether the table is a slot, of which only the bytes are counted.
    """

    def __init__(self, table: DeviceTable, totals: Mapping[str, tf.Variable], slot: bool = False):
        self.rows, self.columns, self.device = table.rows, table.columns, table.device
        self._table, self._totals, self._slot = table, totals, slot
        self.slots = {name: Counting(part, totals, slot=True) for name, part in table.slots.items()}

    def locate(self, ids_U: tf.Tensor) -> tf.Tensor:
        """Return the ids, by which a `DeviceTable` stores its rows."""
        return ids_U

    def gather(self, ids_U: tf.Tensor) -> tf.Tensor:
        """Return the rows of the ids, and add their bytes to `read_bytes`, also within a graph."""
        self._totals["read_bytes"].assign_add(self._bytes(ids_U))
        return self._table.gather(ids_U)

    def assign(self, ids_U: tf.Tensor, rows_UD: tf.Tensor) -> None:
        """Replace the rows of the ids, and add to `written_bytes` and, unless a slot, to `rows`."""
        self._totals["written_bytes"].assign_add(self._bytes(ids_U))
        if not self._slot:
            self._totals["rows"].assign_add(tf.size(ids_U, tf.int64))
        self._table.assign(ids_U, rows_UD)

    def _bytes(self, ids_U: tf.Tensor) -> tf.Tensor:
        """Return the bytes of the rows of the ids in float32, an int64 scalar."""
        return tf.size(ids_U, tf.int64) * self.columns * tf.float32.size
