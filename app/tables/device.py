"""A table in the memory of one device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from .arrays import row_slices
from .base import Layout, Slot, Table
from .initial import Constant, Initial, Unwritten, all_rows
from .rounding import RoundedTable
from .variable import VariableRows


class DeviceTable(RoundedTable, VariableRows):
    """A `tables.base.Table` in the memory of the device that is current when it is made.

    Slots are part of this module, so TensorFlow saves them with it.

    Args:
        initial: A function from a shape to float32 values. It is called once, so that no second
            copy of the table stays in memory.
        slots: The optimizer state of each row, by name. It is made here: made within the trace of a
            step, its initial values would take their memory twice.
    """

    def __init__(
        self,
        rows: int,
        columns: int,
        initial: Initial,
        dtype: tf.DType = tf.float32,
        slots: Mapping[str, Slot] | None = None,
        **options: Any,
    ):
        values = tf.Variable(
            lambda: initial_values(initial, (rows, columns), dtype),
            trainable=False,
            name="values",
        )
        RoundedTable.__init__(self, rows, columns, dtype, **options)
        VariableRows.__init__(self, values)
        self.device = values.device
        self.add_slots(slots or {})

    def assign_exact(self, ids_U: tf.Tensor, rows_UD: tf.Tensor) -> None:
        """Replace rows without a random draw; see `RoundedTable.assign_exact`."""
        VariableRows.assign(self, ids_U, rows_UD)

    def _make_slot(self, name: str, **options: Any) -> DeviceTable:
        """Return a new table for a slot, on the device of this table; `name` is not used."""
        with tf.device(self.values.device):
            return DeviceTable(self.rows, **options)

    def is_finite(self) -> bool:
        """Return whether every number of every row is finite; slots are not read."""

        def is_finite(part: slice) -> bool:
            """Return whether all rows of a slice of ids are finite."""
            rows_ND = self.gather(tf.range(part.start, part.stop, dtype=tf.int64))
            return bool(tf.reduce_all(tf.math.is_finite(rows_ND)))

        with tf.device(self.values.device):
            return all(map(is_finite, row_slices(self.rows, self.columns)))

    def layout(self) -> Layout:
        """Return how a checkpoint holds this table: as one variable."""
        return {"kind": "device"}


def find_elsewhere(tables: Mapping[str, Table]) -> str | None:
    """Return the name of a table that is not wholly in the memory of the device of the steps."""
    first = None
    for name, table in tables.items():
        if not isinstance(table, DeviceTable):
            return name
        own = table.values.device
        first = first or own
        # The device of a table in host memory is the one to which its rows are copied.
        if own != first or ("GPU" in own) != ("GPU" in table.device):
            return name
    return None


def make_cache(backing: RoundedTable, rows: int) -> DeviceTable:
    """Make a table of zeros on the current device, to hold some rows of another table.

    It stores and rounds rows like the other table, and has no slots. With stochastic rounding it
    continues with the next random draw of the other table.
    """
    options = {"dtype": backing.dtype, "rounding": backing.rounding, "seed": backing.seed}
    cache = DeviceTable(rows, backing.columns, Constant(0.0), **options)
    if backing.is_stochastic:
        cache.writes.assign(backing.writes)
    return cache


def initial_values(initial: Initial, shape: tuple[int, int], dtype: tf.DType) -> tf.Tensor:
    """Return the initial values as `dtype`, if possible without a float32 copy of them.

    There is such a copy if the values cannot be made by id, that is without a method `rows`, and
    the function returns them as float32.
    """
    if isinstance(initial, Unwritten):
        return initial(shape, dtype)
    if isinstance(initial, Constant):
        return tf.fill(shape, tf.constant(initial.value, dtype))
    if not hasattr(initial, "rows"):
        return tf.cast(initial(shape), dtype)
    return all_rows(initial, shape, dtype)
