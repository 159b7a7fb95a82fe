"""Variables of Keras as the tables that `optimizers.base` changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from ...system.xla import under_xla
from ...tables.base import Ids, Table
from ...tables.rounding import round_stochastically, round_under_xla
from ...tables.variable import VariableRows
from ..tables.table_variable import TableVariable


def as_table(
    variable: tf.Variable | TableVariable,
    slots: Mapping[str, Any],
    seed: tf.Tensor | None = None,
) -> Any:
    """Return a variable as a table with slots, for `optimizers.base.update_rows`.

    Args:
        variable: The rows.
        slots: The slots by the names of the update rule; if the variable is a `TableVariable`, they
            are as well.
        seed: The seed, (2,) int64, by which new rows are rounded stochastically to the dtype of
            the variable, bfloat16 or float16. By default rows are rounded to the nearest.

    Returns:
        A table. Rows of a TensorFlow variable with more than two axes are flattened to vectors.
    """
    if isinstance(variable, TableVariable):
        table: Any = _WithSlots(variable.table, {name: slot.table for name, slot in slots.items()})
    else:
        table = _Matrix(variable, {name: _Matrix(slot.value) for name, slot in slots.items()})
    return table if seed is None else _Rounded(table, tf.as_dtype(variable.dtype), seed)


class _Matrix(VariableRows):
    """A variable of any rank as a table, with each row flattened to a vector."""

    def __init__(self, values: tf.Variable, slots: Mapping[str, _Matrix] | None = None):
        super().__init__(values)
        self.slots = slots or {}
        self.columns = values.shape[1:].num_elements()

    def gather(self, ids_U: tf.Tensor) -> tf.Tensor:
        """Return rows, each flattened to a vector, (U, D) float32."""
        return tf.reshape(super().gather(ids_U), (-1, self.columns))

    def assign(self, ids_U: tf.Tensor, rows_UD: tf.Tensor) -> None:
        """Replace rows by flattened vectors (U, D), rounded to the nearest of the dtype."""
        super().assign(ids_U, tf.reshape(rows_UD, (-1, *self.values.shape[1:])))


class _Rounded:
    """A table whose new rows are rounded stochastically; the draw depends on a seed only.

    The table stores rows that its dtype can represent as they are, so tables of all kinds hold the
    same rows.
    """

    def __init__(self, table: Any, dtype: tf.DType, seed: tf.Tensor):
        self._table, self._dtype, self._seed = table, dtype, seed
        self.columns, self.slots = table.columns, table.slots
        self.locate, self.gather = table.locate, table.gather

    def assign(self, ids_U: Ids, rows_UD: tf.Tensor) -> None:
        """Round rows (U, D) by the seed, and write them to the table; under XLA by other draws."""
        if under_xla():
            rows_UD = round_under_xla(rows_UD, self._dtype, self._seed, ids_U)
        else:
            rows_UD = round_stochastically(rows_UD, self._dtype, self._seed)
        self._table.assign(ids_U, rows_UD)


class _WithSlots:
    """A table whose slots have the names of an update rule, where Keras gave them others."""

    def __init__(self, table: Table, slots: Mapping[str, Table]):
        self._table, self.columns, self.slots = table, table.columns, slots

    def locate(self, ids_U: tf.Tensor) -> Ids:
        """Locate ids in the table; see `Table.locate`."""
        return self._table.locate(ids_U)

    def gather(self, ids_U: Ids) -> tf.Tensor:
        """Return rows of the table; see `Table.gather`."""
        return self._table.gather(ids_U)

    def assign(self, ids_U: Ids, rows_UD: tf.Tensor) -> None:
        """Replace rows of the table; see `Table.assign`."""
        self._table.assign(ids_U, rows_UD)
