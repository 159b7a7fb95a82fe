"""A table in the memory of one device."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from .base import Layout, Slot
from .initial import Constant, Initial, Unwritten
from .rounding import round_stochastically
from .row_reads import row_slices
from .variable import VariableRows

# The names of a table's variables: its numbers, and the count of its writes.
VARIABLES = ("values", "writes")


class DeviceTable(VariableRows, tf.Module):
    """A `tables.base.Table` in the memory of the device that is current when it is made.

    With stochastic rounding a variable, `writes`, counts the writes, so that training continues
    with the next random draw after a checkpoint is restored. Slots are part of this module, so
    TensorFlow saves them with it.

    Args:
        rows: The number of rows, V.
        columns: The number of columns, D.
        initial: A function from a shape to float32 values. It is called once, so that no second
            copy of the table stays in memory.
        dtype: The dtype in which rows are stored.
        rounding: How rows are rounded to half precision, "nearest" or "stochastic" (see
            `tables.rounding`).
        slot_dtype: The dtype in which slots are stored. Slots of one column count or sum, and are
            small: they are float32.
        seed: The seed of the draws of stochastic rounding, from 0 to 2^63 - 1.
        slots: The optimizer state of each row, by name. It is made here: made within the trace of a
            step, its initial values would take their memory twice.
    """

    def __init__(
        self,
        rows: int,
        columns: int,
        initial: Initial,
        dtype: tf.DType = tf.float32,
        rounding: str = "nearest",
        slot_dtype: tf.DType = tf.float32,
        seed: int = 0,
        slots: Mapping[str, Slot] | None = None,
    ):
        tf.Module.__init__(self)
        self.rows, self.columns = rows, columns
        values = tf.Variable(
            lambda: _initial_values(initial, (rows, columns), dtype),
            trainable=False,
            name=VARIABLES[0],
        )
        VariableRows.__init__(self, values)
        self.device = values.device
        self.slots: dict[str, DeviceTable] = {}
        self.dtype, self.rounding, self.seed = dtype, rounding, seed
        self._slot_dtype = slot_dtype
        self.is_stochastic = rounding == "stochastic" and dtype != tf.float32
        if self.is_stochastic:
            self.writes = tf.Variable(tf.zeros([], tf.int64), trainable=False, name=VARIABLES[1])
        self.add_slots(slots or {})

    def assign(self, ids_U: tf.Tensor, rows_UD: tf.Tensor) -> None:
        """Replace the rows of the given ids, rounded by the rule of this table.

        With stochastic rounding this draws random numbers and adds 1 to `writes`.
        """
        if self.is_stochastic:
            with tf.device(self.writes.device):  # where the number to add to it has to be, too
                seed = tf.stack([tf.constant(self.seed, tf.int64), self.writes.assign_add(1)])
            rows_UD = round_stochastically(rows_UD, self.values.dtype, seed)
        super().assign(ids_U, rows_UD)

    def assign_exact(self, ids_U: tf.Tensor, rows_UD: tf.Tensor) -> None:
        """Replace rows by rows that the stored dtype can represent, without a random draw.

        Args:
            ids_U: Unique ids (U,).
            rows_UD: New rows (U, D).
        """
        super().assign(ids_U, rows_UD)

    def add_slots(self, slots: Mapping[str, Slot]) -> None:
        """Make tables of optimizer state on the device of this table; see `Table.add_slots`."""
        stored = self.columns, self._slot_dtype, self.rounding, self.seed
        with tf.device(self.values.device):
            for name, slot in slots.items():
                self.slots[name] = self._make_slot(**slot_options(name, slot, *stored))

    def _make_slot(self, **options: Any) -> DeviceTable:
        """Make one table of optimizer state, with the options of `slot_options`."""
        return DeviceTable(self.rows, **options)

    def bytes(self) -> int:
        """Return the size in bytes of the rows and of all slots."""
        own = self.rows * self.columns * self.values.dtype.size
        return own + sum(slot.bytes() for slot in self.slots.values())

    def is_finite(self) -> bool:
        """Return whether every number of every row is finite; slots are not read."""

        def is_finite(part: slice) -> bool:
            rows_ND = self.gather(tf.range(part.start, part.stop, dtype=tf.int64))
            return bool(tf.reduce_all(tf.math.is_finite(rows_ND)))

        with tf.device(self.values.device):  # possibly a device of another machine
            return all(map(is_finite, row_slices(self.rows, self.columns)))

    def layout(self) -> Layout:
        """Return how a checkpoint holds this table: as one variable."""
        return {"kind": "device"}


def make_cache(backing: Any, rows: int) -> DeviceTable:
    """Make a table of zeros on the current device, to hold some rows of another table.

    It stores and rounds rows like the other table, and has no slots. With stochastic rounding both
    count their writes in one variable, so each continues with the next random draw.

    Args:
        backing: The other table, a `DeviceTable` or a `FileTable`.
        rows: The number of rows of the new table.
    """
    dtype, rounding = backing.dtype, backing.rounding
    cache = DeviceTable(rows, backing.columns, tf.zeros, dtype, rounding, seed=backing.seed)
    if backing.is_stochastic:
        cache.writes = backing.writes
    return cache


def slot_options(
    name: str, slot: Slot, columns: int, dtype: tf.DType, rounding: str, seed: int
) -> dict[str, Any]:
    """Return the options to make the table of a slot with.

    Args:
        name: The name of the slot.
        slot: Its columns and its initial value.
        columns: The number of columns of the table that has the slot.
        dtype: The dtype in which slots are stored, except for slots of one column.
        rounding: The rounding of the table.
        seed: The seed of the table. Another seed is made of it for each name.
    """
    width = slot.columns or columns
    return {
        "columns": width,
        "initial": Constant(slot.initial),
        "dtype": dtype if width > 1 else tf.float32,
        "rounding": rounding,
        "seed": seed ^ zlib.crc32(name.encode()),
    }


def _initial_values(initial: Initial, shape: tuple[int, int], dtype: tf.DType) -> tf.Tensor:
    """Return the initial values as `dtype`, if possible without a float32 copy of them.

    There is such a copy if the values cannot be made by id, that is without a method `rows`.
    """
    if isinstance(initial, Unwritten):
        return initial(shape, dtype)
    if initial is tf.zeros:
        initial = Constant(0.0)
    if isinstance(initial, Constant):
        return tf.fill(shape, tf.constant(initial.value, dtype))
    if not hasattr(initial, "rows"):
        return tf.cast(initial(shape), dtype)

    # XLA makes one loop of this, which holds nothing but the result. The ids are an argument: from
    # constant ids TensorFlow would first compute all values, only to see whether to keep them.
    @tf.function(autograph=False, jit_compile=True)
    def make(ids_V: tf.Tensor) -> tf.Tensor:
        return tf.cast(initial.rows(ids_V, shape[1]), dtype)

    ids_V = tf.range(shape[0], dtype=tf.int64)
    # A device of another machine runs an XLA function only inside another function.
    return tf.function(make, autograph=False).get_concrete_function(ids_V)(ids_V)
