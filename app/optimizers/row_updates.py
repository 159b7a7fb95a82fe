"""The update of a table: applies an optimizer's rule to U rows and to their state."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from ..tables.base import Table
from .base import Optimizer, Rule


def slots(optimizer: Optimizer, table: Table) -> dict[str, Table]:
    """Return the tables of the optimizer's state, by name of the slot; the first call creates them.

    Args:
        optimizer: The optimizer.
        table: The table whose rows are trained.
    """
    return {
        name: table.slot(name, slot.columns or table.columns, slot.initial)
        for name, slot in optimizer.slots.items()
    }


def update(
    optimizer: Optimizer,
    table: Table,
    ids_U: tf.Tensor,
    rows_UD: tf.Tensor,
    gradients_UD: tf.Tensor,
    rate: tf.Tensor,
    step: tf.Tensor,
) -> None:
    """Apply the optimizer's rule to some rows of a table, and touch no other row.

    Args:
        optimizer: The optimizer.
        table: The table.
        ids_U: Unique ids of rows.
        rows_UD: The rows, as `table.gather(ids_U)` returned them in this step.
        gradients_UD: The gradients of the rows, float32.
        rate: The learning rate, a float32 scalar.
        step: The number of the update, an int64 scalar from 1.
    """
    write(optimizer.rule, table, slots(optimizer, table), ids_U, rows_UD, gradients_UD, rate, step)


def write(
    rule: Rule,
    table: Table,
    state: Mapping[str, Table],
    ids_U: tf.Tensor,
    rows_UD: tf.Tensor,
    gradients_UD: tf.Tensor,
    rate: tf.Tensor,
    step: tf.Tensor,
) -> None:
    """Apply a rule to some rows of a table, given the tables of its state.

    Only `gather` and `assign` of the tables are used. Rows are assigned, which is faster than to
    add to them, so a table must have a single writer.

    Args:
        rule: The update rule.
        table: The table.
        state: The tables of the state, by name of the slot.
        ids_U: Unique ids of rows.
        rows_UD: The rows, as `table.gather(ids_U)` returned them in this step.
        gradients_UD: The gradients of the rows, float32.
        rate: The learning rate, a float32 scalar.
        step: The number of the update, an int64 scalar from 1.
    """
    before = {name: slot.gather(ids_U) for name, slot in state.items()}
    change_UD, after = rule(rows_UD, gradients_UD, before, rate, step)
    table.assign(ids_U, rows_UD + change_UD)
    for name, slot in state.items():
        slot.assign(ids_U, after[name])
