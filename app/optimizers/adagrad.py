"""Adagrad, with an accumulator for each number or for each row."""

from __future__ import annotations

import tensorflow as tf

from ..system.xla import under_xla
from .base import Optimizer, Slot, State


def adagrad(initial: float = 0.1, epsilon: float = 0.0) -> Optimizer:
    """Return Adagrad: a <- a + g^2; x <- x - rate g / sqrt(a + epsilon).

    Duchi et al. 2011, section 1.1, diagonal. The defaults are TensorFlow's; Keras has an epsilon of
    1e-7.

    Args:
        initial: The initial value of the accumulators a. If it and `epsilon` are 0, a gradient of
            zero gives NaN; this is not checked.
        epsilon: Added to the accumulators.
    """

    def rule(
        rows_UD: tf.Tensor, gradients_UD: tf.Tensor, state: State, rate: tf.Tensor, step: tf.Tensor
    ) -> tuple[tf.Tensor, State]:
        """Return the change by Adagrad, and the accumulators with g^2 added."""
        accumulator_UD = state["accumulator"] + tf.square(gradients_UD)
        change_UD = -rate * gradients_UD * _scale(accumulator_UD, epsilon)
        return change_UD, {"accumulator": accumulator_UD}

    return Optimizer(rule, {"accumulator": Slot(0, initial)}, learning_rate=0.2)


def rowwise_adagrad(initial: float = 0.1, epsilon: float = 0.0, power: float = -0.5) -> Optimizer:
    """Return Adagrad with one accumulator for each row, of the mean of g^2 over its columns.

    The change of a row is -rate g (a + epsilon)^power.

    It needs D times less state than Adagrad, and keeps the direction of the gradient. It is
    EXACT_ROWWISE_ADAGRAD of FBGEMM, the kernels of TorchRec, except that accumulators start at
    `initial` and not at 0.

    Args:
        initial: The initial value of the accumulators. If it and `epsilon` are 0, a gradient of
            zero gives NaN; this is not checked.
        epsilon: Added to the accumulators.
        power: The power of the accumulators, -0.5 to 0; `learning_rate_power` of TensorFlow's FTRL.
            Nearer to 0 than the -0.5 of Adagrad, the rate of frequent rows falls less.
    """

    def rule(
        rows_UD: tf.Tensor, gradients_UD: tf.Tensor, state: State, rate: tf.Tensor, step: tf.Tensor
    ) -> tuple[tf.Tensor, State]:
        """Return the change, and the accumulators (U, 1) with the mean of g^2 added."""
        accumulator_U1 = state["accumulator"] + _mean_square(gradients_UD)
        change_UD = -rate * _scale(accumulator_U1, epsilon, power) * gradients_UD
        return change_UD, {"accumulator": accumulator_U1}

    return Optimizer(rule, {"accumulator": Slot(1, initial)}, learning_rate=0.3)


def _mean_square(values_UD: tf.Tensor) -> tf.Tensor:
    """Return the mean of the squares of each row, (U, 1)."""
    if under_xla():  # which reads the rows once for both operations, and has no Euclidean norm
        return tf.reduce_mean(tf.square(values_UD), axis=1, keepdims=True)
    # It reads the rows once and writes no squares: half the time.
    norm_U1 = tf.math.reduce_euclidean_norm(values_UD, axis=1, keepdims=True)
    columns = values_UD.shape[1]
    if columns is None:  # a constant needs no copy to a GPU
        columns = tf.cast(tf.shape(values_UD)[1], tf.float32)
    return tf.square(norm_U1) / columns


def _scale(accumulator: tf.Tensor, epsilon: float, power: float = -0.5) -> tf.Tensor:
    """Return (accumulator + epsilon)^power, without the addition if epsilon is 0."""
    base = accumulator + epsilon if epsilon else accumulator
    return tf.math.rsqrt(base) if power == -0.5 else tf.pow(base, power)
