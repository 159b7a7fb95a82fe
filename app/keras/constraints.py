"""Keras constraints that can be applied to single rows of a table."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from ..optimizers.base import Rule, State, touched

_BY_NORM = (
    keras.constraints.MaxNorm,
    keras.constraints.MinMaxNorm,
    keras.constraints.UnitNorm,
)


def by_row(constraint: Any) -> bool:
    """Return whether a constraint is known to treat each row of a (V, D) table by itself.

    Args:
        constraint: A Keras constraint or None. Only NonNeg and norms along the row count.
    """
    if isinstance(constraint, _BY_NORM):
        return constraint.axis in (1, -1, [1], [-1], (1,), (-1,))
    return isinstance(constraint, keras.constraints.NonNeg)


def row_constraint(variable: Any) -> Any:
    """Return the constraint of a Keras variable (V, D) if it is by row, or None.

    Args:
        variable: A variable of Keras or TensorFlow.
    """
    if not isinstance(variable, keras.Variable) or variable.shape.rank != 2:
        return None
    return variable.constraint if by_row(variable.constraint) else None


def constrained(rule: Rule, constraint: keras.constraints.Constraint) -> Rule:
    """Return a rule that also applies a constraint to the rows that have a gradient.

    A row whose gradient is all zeros stays as it is, even if it violates the constraint.

    Args:
        rule: The rule of an optimizer.
        constraint: A constraint by row (see `by_row`).
    """

    def constrained(
        rows_UD: tf.Tensor, gradients_UD: tf.Tensor, state: State, rate: tf.Tensor, step: tf.Tensor
    ) -> tuple[tf.Tensor, State]:
        """Return the change to the constrained rows, 0 for idle rows, and the new state."""
        change_UD, state = rule(rows_UD, gradients_UD, state, rate, step)
        change_UD = constraint(rows_UD + change_UD) - rows_UD
        return tf.where(touched(gradients_UD), change_UD, 0.0), state

    return constrained
