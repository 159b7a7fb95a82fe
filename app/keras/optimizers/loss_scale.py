"""The loss scale of float16 for models with tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from ..backend import in_call_of
from ..saving.weights_by_part import StateByPart


@keras.saving.register_keras_serializable(package="lexrow")
class LossScaleOptimizer(StateByPart, keras.optimizers.LossScaleOptimizer):
    """Dynamic loss scaling for mixed_float16, around an optimizer of `lexrow.keras`.

    The loss scale optimizer of Keras makes the gradient of each table dense to see whether it is
    finite. This one checks the rows of the batch. Where Keras puts its own around an optimizer of
    `lexrow.keras`, as `compile` does with mixed_float16, it becomes one of this class. Arguments
    are those of Keras.

    Example:
        keras.mixed_precision.set_global_policy("mixed_float16")
        optimizer = lexrow.keras.LossScaleOptimizer(lexrow.keras.LazyAdam(0.001))
        model.compile(optimizer, loss="mse")
    """

    def build(self, var_list: Iterable[keras.Variable]) -> None:
        """Create the state of both optimizers.

        Args:
            var_list: The variables to train.
        """
        super().build(list(var_list))

    def apply(self, grads: Iterable[Any], trainable_variables: Iterable[Any] | None = None) -> None:
        """Update the loss scale, and the variables if all gradients are finite.

        Args:
            grads: The gradients, dense or row-sparse.
            trainable_variables: Their variables.
        """
        if trainable_variables is not None:
            trainable_variables = list(trainable_variables)
        super().apply(list(grads), trainable_variables)

    def check_finite(self, grads: list[Any]) -> tf.Tensor:
        """Return whether all gradients are finite, a bool scalar.

        Args:
            grads: The gradients, dense or row-sparse.
        """
        return super().check_finite(
            [g.values if isinstance(g, tf.IndexedSlices) else g for g in grads]
        )


def replace_loss_scale() -> None:
    """Make the loss scale optimizer of Keras that calls, if there is one, check rows only."""
    wrapper = in_call_of(keras.optimizers.LossScaleOptimizer)
    if type(wrapper) is keras.optimizers.LossScaleOptimizer:
        wrapper.__class__ = LossScaleOptimizer
