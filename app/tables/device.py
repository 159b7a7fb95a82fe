"""Rows in the memory of one device."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from app.tables.variable import VariableRows

_PART = 65_536  # rows read at a time, where the whole table has to be


class DeviceTable(VariableRows, tf.Module):
    """A table (see `tables.base.Table`) in the memory of the device current when it is made.

    rows: V. columns: D. initial: a function of a shape to float32 values; called once, so that no
    second copy of the table stays alive. dtype: of the storage; slots are float32 all the same.
    Slots are part of this module, so a checkpoint of the table holds them too.
    """

    def __init__(
        self,
        rows: int,
        columns: int,
        initial: Callable[[tuple[int, int]], tf.Tensor],
        dtype: tf.DType = tf.float32,
    ):
        tf.Module.__init__(self)
        self.rows, self.columns = rows, columns
        values = tf.Variable(
            lambda: tf.cast(initial((rows, columns)), dtype), trainable=False, name="values"
        )
        VariableRows.__init__(self, values)
        self.device = values.device
        self.slots: dict[str, DeviceTable] = {}

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
