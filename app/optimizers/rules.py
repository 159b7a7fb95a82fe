"""Update rules: pure functions from gradients and state to a change of rows and a new state.

A rule is called as `rule(gradients_UD, state, rate)`, where `state` holds one (U, columns) tensor
for each of the rule's slots and `rate` is a scalar; it gives the change of the rows, (U, D), and
the new state. All is float32. The gradient of a row is the sum over its occurrences, so that a rule
sees what a dense optimizer would.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow as tf

State = dict[str, tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Slot:
    """One tensor of state for each row: `columns` wide (0: as wide as the row)."""

    columns: int
    initial: float


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """A rule, the state it keeps for a row, and the learning rate that suits word vectors."""

    rule: Callable[[tf.Tensor, State, tf.Tensor], tuple[tf.Tensor, State]]
    slots: dict[str, Slot]
    learning_rate: float


def sgd() -> Optimizer:
    """Stochastic gradient descent: x <- x - rate g. The rate is that of word2vec.c (`alpha`)."""

    def rule(gradients_UD: tf.Tensor, state: State, rate: tf.Tensor) -> tuple[tf.Tensor, State]:
        return -rate * gradients_UD, state

    return Optimizer(rule, {}, learning_rate=0.005)


def adagrad(initial: float) -> Optimizer:
    """Adagrad (Duchi et al. 2011, section 1.1, diagonal): a <- a + g^2; x <- x - rate g / sqrt(a).

    As TensorFlow's dense Adagrad without its epsilon, which `initial` > 0 makes needless.
    """

    def rule(gradients_UD: tf.Tensor, state: State, rate: tf.Tensor) -> tuple[tf.Tensor, State]:
        accumulator = state["accumulator"] + tf.square(gradients_UD)
        return -rate * gradients_UD * tf.math.rsqrt(accumulator), {"accumulator": accumulator}

    return Optimizer(rule, {"accumulator": Slot(0, initial)}, learning_rate=0.2)


def rowwise_adagrad(initial: float) -> Optimizer:
    """Adagrad with one accumulator a row, of the mean of g^2 over the row's columns.

    What FBGEMM, the kernels under TorchRec, calls EXACT_ROWWISE_ADAGRAD: D times less state than
    Adagrad, and the direction of the gradient is kept.
    """

    def rule(gradients_UD: tf.Tensor, state: State, rate: tf.Tensor) -> tuple[tf.Tensor, State]:
        mean_U1 = tf.reduce_mean(tf.square(gradients_UD), axis=1, keepdims=True)
        accumulator = state["accumulator"] + mean_U1
        return -rate * tf.math.rsqrt(accumulator) * gradients_UD, {"accumulator": accumulator}

    return Optimizer(rule, {"accumulator": Slot(1, initial)}, learning_rate=0.3)
