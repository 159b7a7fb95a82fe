"""Adam and AdamW on the rows that a step touches.

They are lazy: a row whose gradient is 0 keeps its moments and does not move. Dense Adam decays its
moments and moves it.
"""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from .base import Optimizer, Slot, State, touched

# float32 represents every integer up to this one.
_INTEGERS = 1 << 24


def lazy_adam(
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-7,
    correct_skipped: bool = False,
    amsgrad: bool = False,
    weight_decay: float = 0.0,
) -> Optimizer:
    """Return lazy Adam (Kingma & Ba 2015), in the form before section 2.1, as Keras has it.

    m <- beta_1 m + (1 - beta_1) g; v <- beta_2 v + (1 - beta_2) g^2;
    x <- x - rate sqrt(1 - beta_2^t) / (1 - beta_1^t) m / (sqrt(v) + epsilon).

    t counts the steps of the table, not of the row. So a row that is first touched late moves by up
    to (1 - beta_1) / sqrt(1 - beta_2) = 3.2 times the rate, as with dense Adam.

    Args:
        beta_1: With 0, m is g, and no slot has it.
        epsilon: The default is Keras'; the other defaults are the paper's.
        correct_skipped: Whether to decay the moments of a row by the steps since it was last
            touched, modulo 2^24, as if its gradients had been 0 (tensorflow issue 23668). Moments
            and changes then equal dense Adam's, without the moves in between.
        amsgrad: Whether v never decreases (Reddi et al. 2018, algorithm 2).
    """
    moments = ("momentum", "velocity") if beta_1 else ("velocity",)
    slots = {name: Slot(0, 0.0, "mean") for name in moments}
    if amsgrad:
        slots["greatest_velocity"] = Slot(0, 0.0, "largest")
    if correct_skipped:
        slots["last_step"] = Slot(1, 0.0, "largest")

    def rule(
        rows_UD: tf.Tensor, gradients_UD: tf.Tensor, state: State, rate: tf.Tensor, step: tf.Tensor
    ) -> tuple[tf.Tensor, State]:
        """Return the change by lazy Adam, weight decay included, and the new slots."""
        new: dict[str, tf.Tensor] = {}
        momentum_UD, touched_U1 = gradients_UD, touched(gradients_UD)
        steps_U1: tf.Tensor | float = 1.0  # since the row was last touched
        if correct_skipped:
            now = tf.cast(step % _INTEGERS, tf.float32)
            steps_U1 = tf.math.floormod(now - state["last_step"] - 1.0, float(_INTEGERS)) + 1.0
            new["last_step"] = tf.where(touched_U1, now, state["last_step"])

        # An idle row is multiplied by 1 and moved by 0, in (U, 1) numbers instead of (U, D).
        if beta_1:
            decay_1_U1 = tf.where(touched_U1, beta_1**steps_U1, 1.0)
            momentum_UD = decay_1_U1 * state["momentum"] + (1 - beta_1) * gradients_UD
            new["momentum"] = momentum_UD
        decay_2_U1 = tf.where(touched_U1, beta_2**steps_U1, 1.0)
        velocity_UD = decay_2_U1 * state["velocity"] + (1 - beta_2) * tf.square(gradients_UD)
        new["velocity"] = velocity_UD
        if amsgrad:
            velocity_UD = tf.maximum(state["greatest_velocity"], velocity_UD)
            new["greatest_velocity"] = velocity_UD

        bias = tf.sqrt(_one_minus_power(beta_2, step)) / _one_minus_power(beta_1, step)
        rate_U1 = tf.where(touched_U1, -rate * bias, 0.0)
        change_UD = rate_U1 * momentum_UD / (tf.sqrt(velocity_UD) + epsilon)
        if weight_decay:
            decay = rate * weight_decay
            decay = _repeat_decay(decay, steps_U1) if correct_skipped else decay
            change_UD -= tf.where(touched_U1, decay, 0.0) * rows_UD
        return change_UD, new

    return Optimizer(rule, slots, learning_rate=0.02)


def lazy_adamw(weight_decay: float = 0.004, **options: Any) -> Optimizer:
    """Return lazy Adam with decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2).

    A row with a gradient also shrinks by rate x weight_decay of itself. With `correct_skipped` it
    shrinks once for every step since it was last touched, all at the present rate.

    Args:
        weight_decay: The default is Keras'.
        **options: The other arguments of `lazy_adam`.
    """
    return lazy_adam(weight_decay=weight_decay, **options)


def _repeat_decay(decay: tf.Tensor, steps_U1: tf.Tensor) -> tf.Tensor:
    """Return 1 - (1 - decay) ** steps, (U, 1); float32 does not round the base to 1."""
    return -tf.math.expm1(steps_U1 * tf.math.log1p(-tf.minimum(decay, 1.0)))


def _one_minus_power(beta: float, step: tf.Tensor) -> tf.Tensor:
    """Return 1 - beta ** step, precisely even if the power is close to 1."""
    exponent = math.log(beta) if beta else -math.inf
    return -tf.math.expm1(exponent * tf.cast(step, tf.float32))
