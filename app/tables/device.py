"""Rows in the memory of one device."""

from __future__ import annotations

import zlib
from typing import Any

import tensorflow as tf

from .initial import Constant, Initial, Unwritten
from .rounding import stochastic
from .row_reads import parts
from .variable import VariableRows

# The names of a table's variables, by which they are known where variables are made.
VARIABLES = ("values", "writes")


class DeviceTable(VariableRows, tf.Module):
    """A table (see `tables.base.Table`) in the memory of the device current when it is made.

    rows: V. columns: D. initial: a function of a shape to float32 values; called once, so that no
    second copy of the table stays alive. dtype: of the storage. slot_dtype: of the slots', but for
    those of one column, which are float32: they count or sum, and are small.

    rounding: of what is stored in half precision, "nearest" or "stochastic" (see
    `tables.rounding`). The latter counts the writes in a variable, `writes`, so that a checkpoint
    goes on with the next draw; then `add` reads and writes, and of writers that race one wins.
    seed: of the draws, from 0 to 2^63 - 1.

    Slots are part of this module, so a checkpoint of the table holds them too.
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
    ):
        tf.Module.__init__(self)
        self.rows, self.columns = rows, columns
        values = tf.Variable(
            lambda: _values(initial, (rows, columns), dtype), trainable=False, name=VARIABLES[0]
        )
        VariableRows.__init__(self, values)
        self.device = values.device
        self.slots: dict[str, DeviceTable] = {}
        self._rounding, self._slot_dtype, self._seed = rounding, slot_dtype, seed
        self._is_stochastic = rounding == "stochastic" and dtype != tf.float32
        if self._is_stochastic:
            self.writes = tf.Variable(tf.zeros([], tf.int64), trainable=False, name=VARIABLES[1])

    def add(self, ids_U: tf.Tensor, delta_UD: tf.Tensor) -> None:
        """Adds to the rows of unique ids."""
        if self._is_stochastic:
            self.assign(ids_U, self.gather(ids_U) + delta_UD)
        else:
            super().add(ids_U, delta_UD)

    def assign(self, ids_U: tf.Tensor, rows_UD: tf.Tensor) -> None:
        """Replaces the rows of unique ids, rounded as the table was asked to."""
        if self._is_stochastic:
            with tf.device(self.writes.device):  # also that of numbers that are added to it
                seed = tf.stack([tf.constant(self._seed, tf.int64), self.writes.assign_add(1)])
            rows_UD = stochastic(rows_UD, self.values.dtype, seed)
        super().assign(ids_U, rows_UD)

    def slot(self, name: str, columns: int, initial: float) -> DeviceTable:
        """A table of the same rows beside this one; see `tables.base.Table.slot`."""
        if name not in self.slots:
            with tf.init_scope(), tf.device(self.values.device):
                self.slots[name] = self._beside(
                    columns,
                    Constant(initial),
                    dtype=self._slot_dtype if columns > 1 else tf.float32,
                    rounding=self._rounding,
                    seed=self._seed ^ zlib.crc32(name.encode()),
                )
        return self.slots[name]

    def _beside(self, columns: int, initial: Initial, **options: Any) -> DeviceTable:
        return DeviceTable(self.rows, columns, initial, **options)

    def put(self, ids_U: tf.Tensor, rows_UD: tf.Tensor) -> None:
        """As `assign`, of rows that the storage can hold as they are: nothing is drawn."""
        super().assign(ids_U, rows_UD)

    def like(self, rows: int) -> DeviceTable:
        """A table of so many zeros on the current device, stored and rounded as this one.

        The two count their writes together, so that either goes on with the next draw.
        """
        dtype = self.values.dtype
        found = DeviceTable(rows, self.columns, tf.zeros, dtype, self._rounding, seed=self._seed)
        if self._is_stochastic:
            found.writes = self.writes
        return found

    def bytes(self) -> int:
        """Bytes of the rows and of the slots made so far."""
        own = self.rows * self.columns * self.values.dtype.size
        return own + sum(slot.bytes() for slot in self.slots.values())

    def is_finite(self) -> bool:
        """Whether every number of every row is finite."""

        def is_finite(part: slice) -> bool:
            rows_ND = self.gather(tf.range(part.start, part.stop, dtype=tf.int64))
            return bool(tf.reduce_all(tf.math.is_finite(rows_ND)))

        with tf.device(self.values.device):  # which may be another machine's
            return all(map(is_finite, parts(self.rows, self.columns)))


def _values(initial: Initial, shape: tuple[int, int], dtype: tf.DType) -> tf.Tensor:
    """The initial values as `dtype`; where they can be made by id, without a float32 copy."""
    if isinstance(initial, Unwritten):
        return initial(shape, dtype)
    if initial is tf.zeros:
        initial = Constant(0.0)
    if isinstance(initial, Constant):
        return tf.fill(shape, tf.constant(initial.value, dtype))
    if not hasattr(initial, "rows"):
        return tf.cast(initial(shape), dtype)

    # XLA makes one loop of it, which holds nothing but the result. Of ids that are no argument
    # TensorFlow would first make all values to see whether they are worth to keep as a constant.
    @tf.function(autograph=False, jit_compile=True)
    def make(ids_V: tf.Tensor) -> tf.Tensor:
        return tf.cast(initial.rows(ids_V, shape[1]), dtype)

    ids_V = tf.range(shape[0], dtype=tf.int64)
    # Called by another function, as a device of another machine takes no other that XLA compiles.
    return tf.function(make, autograph=False).get_concrete_function(ids_V)(ids_V)
