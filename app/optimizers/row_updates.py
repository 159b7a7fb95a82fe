"""The writer between a rule and a table: reads the state of U rows, and writes U rows back."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from ..tables.base import Table
from .base import Optimizer, Rule


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
    step: tf.Tensor,
) -> None:
    """Applies the optimizer's rule to the rows of unique ids, and touches nothing else.

    rows_UD: what `table.gather(ids_U)` gave in this step. rate: float32; step: int64, 1 for the
    first update.
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
    """`update` where the slots are known: `state`, by the rule's names for them.

    Of tables only `gather` and `assign` are used.
    Rows are assigned, not added to, as that is faster; a table must have a single writer.
    """
    before = {name: slot.gather(ids_U) for name, slot in state.items()}
    change_UD, after = rule(rows_UD, gradients_UD, before, rate, step)
    table.assign(ids_U, rows_UD + change_UD)
    for name, slot in state.items():
        slot.assign(ids_U, after[name])
