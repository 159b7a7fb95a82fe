"""The update of a table: applies an optimizer's rule to U rows and to their state."""

from __future__ import annotations

import tensorflow as tf

from ..tables.base import Ids, Table
from .base import Rule


def update_rows(
    rule: Rule,
    table: Table,
    ids_U: Ids,
    gradients_UD: tf.Tensor,
    rate: tf.Tensor,
    step: tf.Tensor,
    rows_UD: tf.Tensor | None = None,
) -> None:
    """Apply an update rule to some rows of a table and to their slots, and write both.

    No other row is touched. Rows are read, changed and assigned, so a table must have a single
    writer.

    Args:
        rule: The update rule.
        table: The table, made with the slots of the optimizer that has the rule.
        ids_U: Unique ids of rows. They are located once, for the rows and all slots.
        gradients_UD: The gradients of the rows, float32.
        rate: The learning rate, a float32 scalar.
        step: The number of the update, an int64 scalar from 1.
        rows_UD: The rows as they are in the table, float32. By default they are gathered.
    """
    ids_U = table.locate(ids_U)
    if rows_UD is None:
        rows_UD = table.gather(ids_U)
    state = {name: slot.gather(ids_U) for name, slot in table.slots.items()}
    change_UD, state = rule(rows_UD, gradients_UD, state, rate, step)
    table.assign(ids_U, rows_UD + change_UD)
    for name, slot in table.slots.items():
        slot.assign(ids_U, state[name])
