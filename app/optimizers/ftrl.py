"""FTRL-Proximal."""

from __future__ import annotations

import tensorflow as tf

from .base import Optimizer, Slot, State, touched


def ftrl(l1: float = 0.0, l2: float = 0.0, beta: float = 0.0, initial: float = 0.1) -> Optimizer:
    """FTRL-Proximal (McMahan et al. 2013, algorithm 1), whose l1 makes numbers exactly 0.

    n <- n + g^2; z <- z + g - (sqrt(n) - sqrt(old n)) x / rate;
    x <- -sign(z) max(|z| - l1, 0) / ((beta + sqrt(n)) / rate + l2).

    l1, l2, beta: lambda_1, lambda_2 and beta of the paper. (TensorFlow's and Keras' l2 is half of
    lambda_2.) initial: where n starts; 0.1 is TensorFlow's.

    The formula for z is that of a constant rate, and starts from x = 0, to which z = 0 belongs. By
    it, as in TensorFlow, a row that starts elsewhere falls to 0 when first touched, and one whose
    rate falls follows it to 0. So a number that is not 0 first takes the z to which its x belongs
    at the present rate; that is the paper's equation 3 for rates that change. Without l1 there is
    always such a z, which need not be kept, and what is left is
    x <- x - g / ((beta + sqrt(n)) / rate + l2).
    """

    def plain(
        rows_UD: tf.Tensor, gradients_UD: tf.Tensor, state: State, rate: tf.Tensor, step: tf.Tensor
    ) -> tuple[tf.Tensor, State]:
        accumulator_UD = state["accumulator"] + tf.square(gradients_UD)
        change_UD = -gradients_UD / ((beta + tf.sqrt(accumulator_UD)) / rate + l2)
        return change_UD, {"accumulator": accumulator_UD}

    def rule(
        rows_UD: tf.Tensor, gradients_UD: tf.Tensor, state: State, rate: tf.Tensor, step: tf.Tensor
    ) -> tuple[tf.Tensor, State]:
        old_UD = state["accumulator"]
        old_root_UD = tf.sqrt(old_UD)
        start_UD = -rows_UD * ((beta + old_root_UD) / rate + l2) - l1 * tf.sign(rows_UD)
        linear_UD = tf.where(tf.equal(rows_UD, 0.0), state["linear"], start_UD)

        accumulator_UD = old_UD + tf.square(gradients_UD)
        root_UD = tf.sqrt(accumulator_UD)
        linear_UD += gradients_UD - (root_UD - old_root_UD) / rate * rows_UD
        shrunk_UD = tf.clip_by_value(linear_UD, -l1, l1) - linear_UD
        change_UD = shrunk_UD / ((beta + root_UD) / rate + l2) - rows_UD

        touched_U1 = touched(gradients_UD)
        state = {
            "accumulator": accumulator_UD,
            "linear": tf.where(touched_U1, linear_UD, state["linear"]),
        }
        return tf.where(touched_U1, change_UD, 0.0), state

    slots = {"accumulator": Slot(0, initial)}
    if not l1:
        return Optimizer(plain, slots, learning_rate=0.3)
    return Optimizer(rule, slots | {"linear": Slot(0, 0.0)}, learning_rate=0.3)
