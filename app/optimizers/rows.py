"""The writer between a rule and a table: reads the state of U rows, and writes U rows back."""

from __future__ import annotations

import tensorflow as tf

from app.optimizers.rules import Optimizer
from app.tables.base import Table


def slots(optimizer: Optimizer, table: Table) -> dict[str, Table]:
    """The tables of the optimizer's state beside `table`, made at the first call."""
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
) -> None:
    """Applies the rule to the rows of unique ids, and touches nothing else.

    rows_UD: what `table.gather(ids_U)` gave in this step. Rows are assigned, not added to, as that
    is faster; a table must have a single writer.
    """
    tables = slots(optimizer, table)
    state = {name: slot.gather(ids_U) for name, slot in tables.items()}
    change_UD, state = optimizer.rule(gradients_UD, state, rate)
    table.assign(ids_U, rows_UD + change_UD)
    for name, slot in tables.items():
        slot.assign(ids_U, state[name])
