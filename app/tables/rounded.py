"""The part that is common to all tables that store their own rows: dtype, rounding and slots."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from .base import Ids, Slot
from .initial import Constant
from .rounding import round_stochastically


class RoundedTable(tf.Module):
    """The base class of tables that round rows to the dtype in which they store them.

    With stochastic rounding a variable, `writes`, counts the writes, so that training continues
    with the next random draw after a checkpoint is restored. A subclass defines `assign_exact` and
    `_make_slot`, and calls `add_slots` at the end of its constructor.

    Args:
        rows: The number of rows, V.
        columns: The number of columns, D.
        dtype: The dtype in which rows are stored.
        rounding: How rows are rounded to half precision, "nearest" or "stochastic" (see
            `tables.rounding`).
        slot_dtype: The dtype in which slots are stored. Slots of one column count or sum, and are
            small: they are float32.
        seed: The seed of the draws of stochastic rounding, from 0 to 2^63 - 1.
    """

    device: str
    slots: dict[str, Any]

    def __init__(
        self,
        rows: int,
        columns: int,
        dtype: tf.DType = tf.float32,
        rounding: str = "nearest",
        slot_dtype: tf.DType = tf.float32,
        seed: int = 0,
    ):
        tf.Module.__init__(self)
        self.rows, self.columns = rows, columns
        self.dtype, self.rounding, self.slot_dtype, self.seed = dtype, rounding, slot_dtype, seed
        self.is_stochastic = rounding == "stochastic" and dtype != tf.float32
        if self.is_stochastic:
            self.writes = tf.Variable(tf.zeros([], tf.int64), trainable=False, name="writes")

    def assign(self, ids_U: Ids, rows_UD: tf.Tensor) -> None:
        """Replace the rows of the given ids, rounded by the rule of this table; see `Table.assign`.

        With stochastic rounding this draws random numbers and adds 1 to `writes`.
        """
        if self.is_stochastic:
            with tf.device(self.writes.device):  # the increment must be there, too
                seed = tf.stack([tf.constant(self.seed, tf.int64), self.writes.assign_add(1)])
            rows_UD = round_stochastically(rows_UD, self.dtype, seed)
        self.assign_exact(ids_U, rows_UD)

    def assign_exact(self, ids_U: Ids, rows_UD: tf.Tensor) -> None:
        """Replace rows by rows that the stored dtype can represent, without a random draw.

        Args:
            ids_U: Unique ids (U,).
            rows_UD: New rows (U, D).

        Raises:
            NotImplementedError: Always, in this base class.
        """
        raise NotImplementedError

    def add_slots(self, slots: Mapping[str, Slot]) -> None:
        """Make further tables of optimizer state, and add them to `slots`.

        They round as this table does. A slot of one column is float32, others `slot_dtype`.

        Args:
            slots: The new slots by name.
        """
        # After the rows: checkpoints are checked in the order of the attributes.
        self.slots = getattr(self, "slots", {})
        for name, slot in slots.items():
            columns = slot.columns or self.columns
            self.slots[name] = self._make_slot(
                name,
                columns=columns,
                initial=Constant(slot.initial),
                dtype=self.slot_dtype if columns > 1 else tf.float32,
                rounding=self.rounding,
                seed=self.seed ^ zlib.crc32(name.encode()),
            )

    def bytes(self) -> int:
        """Return the size in bytes of the rows and of all slots."""
        own = self.rows * self.columns * self.dtype.size
        return own + sum(slot.bytes() for slot in self.slots.values())

    def _make_slot(self, name: str, **options: Any) -> RoundedTable:
        """Return a new table for one slot, made with these options of the subclass's constructor.

        This base class raises NotImplementedError.
        """
        raise NotImplementedError
