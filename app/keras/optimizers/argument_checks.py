"""The checks of the arguments of an optimizer that Keras does not check."""

from __future__ import annotations

from numbers import Real

import keras
import tensorflow as tf

_NOT_NEGATIVE = (
    *("clipnorm", "clipvalue", "global_clipnorm", "weight_decay"),
    *("epsilon", "initial_accumulator_value", "beta"),
)
_BELOW_1 = ("beta_1", "beta_2")


def check_arguments(optimizer: keras.optimizers.Optimizer) -> None:
    """Raise ValueError if an argument of an optimizer is a number out of range, or NaN.

    Args:
        optimizer: The optimizer. An argument that it does not have is not checked.
    """
    rate = optimizer._learning_rate
    # A MultiOptimizer can make an optimizer in the trace of a step, where no value is known.
    if isinstance(rate, keras.Variable) and tf.executing_eagerly() and not rate.numpy() > 0:
        raise ValueError(f"learning_rate={rate.numpy():g}: give a positive number")
    for name in (*_NOT_NEGATIVE, *_BELOW_1):
        value = getattr(optimizer, name, None)
        if not isinstance(value, Real):  # None, or a tensor
            continue
        if not float(value) >= 0:
            raise ValueError(f"{name}={value}: give at least 0")
        if name in _BELOW_1 and not float(value) < 1:
            raise ValueError(f"{name}={value}: give less than 1")
