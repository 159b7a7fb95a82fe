"""What an optimizer is: a pure update rule, the state it keeps for a row, and how it clips.

A rule is called as `rule(rows_UD, gradients_UD, state, rate, step)`: the rows before the update,
their gradients, one (U, columns) tensor for each of the rule's slots, the learning rate (a scalar)
and the number of the update (int64, from 1). It gives the change of the rows, (U, D), and the new
state. All else is float32. The gradient of a row is the sum over its occurrences, so that a rule
sees what a dense optimizer would.

A row whose gradient is all zeros is idle: a rule leaves it and its state as they are, bit for bit.
Padding and unused samples are looked up, too, but are no reason for a row to move.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow as tf

State = dict[str, tf.Tensor]
Rule = Callable[
    [tf.Tensor, tf.Tensor, State, tf.Tensor, tf.Tensor],
    tuple[tf.Tensor, State],
]
Gradients = dict[str, tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Slot:
    """One tensor of state for each row: `columns` wide (0: as wide as the row)."""

    columns: int
    initial: float


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """A rule with its slots by name.

    learning_rate: what suits word vectors (data/benchmarks/README.md). clip: from the gradients of
    a step, (U, D) by table, to those that the rule is given; see `optimizers.clipping`.
    """

    rule: Rule
    slots: dict[str, Slot]
    learning_rate: float
    clip: Callable[[Gradients], Gradients] = lambda gradients: gradients


def touched(gradients_UD: tf.Tensor) -> tf.Tensor:
    """Whether a row's gradient has a number that is not 0: (U, 1) bool."""
    return tf.reduce_any(tf.not_equal(gradients_UD, 0.0), axis=1, keepdims=True)
