"""The interface of an optimizer: a pure update rule, and the state that it keeps for each row.

A rule is a function `rule(rows_UD, gradients_UD, state, rate, step) -> (change_UD, new state)`.

Args of a rule:
    rows_UD: The rows before the update, float32.
    gradients_UD: Their gradients, float32. The gradient of a row is the sum over its occurrences in
        the batch, as a dense optimizer would see it.
    state: A tensor (U, columns) float32 for each slot, by name.
    rate: The learning rate, a float32 scalar.
    step: The number of the update, an int64 scalar from 1.

A rule returns the change of the rows and the new state. A row whose gradient is all zeros is idle:
a rule leaves the row and its state as they are, bit for bit. Padding and unused samples are looked
up, too, and must not move their rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from ..system.xla import under_xla
from ..tables.base import Ids, Slot, Table

State = dict[str, tf.Tensor]
Rule = Callable[[tf.Tensor, tf.Tensor, State, tf.Tensor, tf.Tensor], tuple[tf.Tensor, State]]
Gradients = dict[str, tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """An update rule with its slots.

    Attributes:
        slots: The state of a row, by name of the slot.
        learning_rate: A rate that suits word vectors (data/benchmarks/README.md).
        clip: A function from the gradients of a step, (U, D) by name of the table, to the gradients
            to give to the rule (see `clip_by_row_norm`). By default they stay as they are.
    """

    rule: Rule
    slots: dict[str, Slot]
    learning_rate: float
    clip: Callable[[Gradients], Gradients] = lambda gradients: gradients


def touched(gradients_UD: tf.Tensor) -> tf.Tensor:
    """Return for each row whether its gradient has a number that is not 0, (U, 1) bool."""
    if under_xla():  # which would have as many zeros in memory to compare with
        return tf.reduce_sum(tf.abs(gradients_UD), axis=1, keepdims=True) != 0.0
    return tf.reduce_any(tf.not_equal(gradients_UD, 0.0), axis=1, keepdims=True)


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
        table: The table, made with the slots of the optimizer that has the rule.
        ids_U: Unique ids of rows. They are located once, for the rows and all slots.
        gradients_UD: The gradients of the rows, float32.
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


def clip_by_row_norm(gradients: Gradients, limit: float) -> Gradients:
    """Return the gradients, with each row of a greater L2 norm scaled down to the norm `limit`."""
    return {name: _scale(rows_UD, _norm(rows_UD, 1), limit) for name, rows_UD in gradients.items()}


def clip_by_global_norm(gradients: Gradients, limit: float) -> Gradients:
    """Return the gradients, all scaled down by one factor if their joint L2 norm exceeds `limit`.

    Pascanu et al. 2013, algorithm 1. All other rows of the tables have a gradient of 0, so the
    joint norm equals the norm of the dense gradient.
    """
    norm = tf.norm(tf.stack([_norm(rows_UD) for rows_UD in gradients.values()]))
    return {name: _scale(rows_UD, norm, limit) for name, rows_UD in gradients.items()}


def _norm(rows_UD: tf.Tensor, axis: int | None = None) -> tf.Tensor:
    """Return the L2 norm of all numbers, a scalar, or of each row if `axis` is 1, (U, 1)."""
    return tf.sqrt(tf.reduce_sum(tf.square(rows_UD), axis=axis, keepdims=axis is not None))


def _scale(rows_UD: tf.Tensor, norm: tf.Tensor, limit: float) -> tf.Tensor:
    """Return the rows times limit / norm, or unchanged where the norm is at most `limit`."""
    return rows_UD * (limit / tf.maximum(norm, limit))
