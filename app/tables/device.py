"""Rows in the memory of one device: a tf.Variable that is only ever touched row by row."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

_PART = 65_536  # rows read at a time, where the whole table has to be


class DeviceTable(tf.Module):
    """A table (see `tables.base.Table`) in the memory of the device current when it is made.

    rows: V. columns: D. initial: a function of a shape to float32 values; called once, so that no
    second copy of the table stays alive. Slots are part of this module, so a checkpoint of the
    table holds them too.
    """

    def __init__(self, rows: int, columns: int, initial: Callable[[tuple[int, int]], tf.Tensor]):
        super().__init__()
        self.rows, self.columns = rows, columns
        self.values = tf.Variable(lambda: initial((rows, columns)), trainable=False, name="values")
        self.slots: dict[str, DeviceTable] = {}

    def gather(self, ids_U: tf.Tensor) -> tf.Tensor:
        """The rows of the ids, (U, D) float32."""
        return tf.gather(self.values, ids_U)

    def add(self, ids_U: tf.Tensor, delta_UD: tf.Tensor) -> None:
        """Adds to the rows of unique ids."""
        tf.raw_ops.ResourceScatterAdd(resource=self.values.handle, indices=ids_U, updates=delta_UD)

    def assign(self, ids_U: tf.Tensor, rows_UD: tf.Tensor) -> None:
        """Replaces the rows of unique ids.

        On a CPU this copies whole rows, 3 to 5 times faster than `add`, whose kernel goes through
        an Eigen expression a row (2,048 ids of 100 columns: 45 against 155 microseconds).
        """
        tf.raw_ops.ResourceScatterUpdate(
            resource=self.values.handle, indices=ids_U, updates=rows_UD
        )

    def slot(self, name: str, columns: int, initial: float) -> DeviceTable:
        """A table of the same rows beside this one; see `tables.base.Table.slot`."""
        if name not in self.slots:
            with tf.init_scope(), tf.device(self.values.device):
                self.slots[name] = DeviceTable(
                    self.rows, columns, lambda shape: tf.fill(shape, tf.constant(initial))
                )
        return self.slots[name]

    def bytes(self) -> int:
        """Bytes of the rows and of the slots made so far."""
        own = self.rows * self.columns * self.values.dtype.size
        return own + sum(slot.bytes() for slot in self.slots.values())

    def is_finite(self) -> bool:
        """Whether every number of every row is finite."""
        starts = range(0, self.rows, _PART)
        parts = (tf.range(start, min(start + _PART, self.rows)) for start in starts)
        return all(bool(tf.reduce_all(tf.math.is_finite(self.gather(part)))) for part in parts)
