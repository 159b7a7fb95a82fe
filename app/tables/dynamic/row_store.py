"""The memory of a dynamic table: rows by the row numbers that a key map gives out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from ..arrays import row_slices
from ..base import Layout, Slot
from ..device import DeviceTable
from ..initial import Initial, Unwritten, initial_rows
from .keys import KeyMap


class RowStore(DeviceTable):
    """The rows of a key map: a `tables.base.Table` whose ids are the map's row numbers.

    On a CPU the system commits memory when a row is first written, so a growing table copies
    nothing. A GPU allocates all of it at once. A row has no value before it is admitted.
    """

    grows = True

    def __init__(
        self,
        key_map: KeyMap,
        columns: int,
        initial: Initial,
        slots: Mapping[str, Slot] | None = None,
        **options: Any,
    ):
        super().__init__(key_map.capacity, columns, Unwritten(), **options)
        self.initial, self._key_map = initial, key_map
        for part in row_slices(self.used, self.columns):
            self.admit(np.arange(part.start, part.stop), key_map.hashes_V[part])
        self.add_slots(slots or {})

    def admit(self, rows: np.ndarray, hashes: np.ndarray) -> None:
        """Write the initial values of rows, and of their slots, for new keys.

        Args:
            hashes: The hashes of the keys that have these rows from now on, (N,) int64 (see
                `KeyMap.hashes`).
        """
        for part in row_slices(len(rows), self.columns):
            self.assign_exact(rows[part], self.initial_rows(tf.constant(hashes[part])))
        for slot in self.slots.values():
            slot.admit(rows, hashes)

    def initial_rows(self, hashes_U: tf.Tensor) -> tf.Tensor:
        """Return the initial rows of keys.

        Returns:
            Rows (U, D), float32.
        """
        return initial_rows(self.initial, hashes_U, (self.rows, self.columns))

    @property
    def used(self) -> int:
        """The number of rows that were ever in use; those from this number on have no values."""
        return self._key_map.used

    def layout(self) -> Layout:
        """Return how a checkpoint holds this table: by the rows that a key map gives out."""
        return {"kind": "dynamic"}

    def _make_slot(self, name: str, **options: Any) -> RowStore:
        """Return a store for a slot, with the same key map and device; `name` is not used."""
        with tf.device(self.values.device):
            return RowStore(self._key_map, **options)
