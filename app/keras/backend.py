"""Helpers for Keras: the check of its backend, and initial values without temporary copies."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from .. import __name__ as PACKAGE
from ..tables.variable import compute_in_graph

_RANDOM = (
    keras.initializers.RandomNormal,
    keras.initializers.RandomUniform,
    keras.initializers.TruncatedNormal,
    keras.initializers.VarianceScaling,
)


def require_tensorflow() -> None:
    """Check that Keras runs on TensorFlow.

    Raises:
        ValueError: It runs on another backend.
    """
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            f"{PACKAGE}.keras needs Keras on TensorFlow, not on {keras.backend.backend()}; "
            "set KERAS_BACKEND=tensorflow before keras is imported"
        )


def refuse_strategy(table: str) -> None:
    """Check that no strategy of tf.distribute is in use.

    Args:
        table: The table that would be used, for the message.

    Raises:
        ValueError: There is a strategy.
    """
    if tf.distribute.has_strategy():
        raise ValueError(
            f"{table} has one copy of its rows, and {type(tf.distribute.get_strategy()).__name__} "
            "would update it in each replica; use RowEmbedding with table='device'"
        )


def in_place(initializer: Any) -> Any:
    """Return an initializer that makes the same values without temporary copies of them.

    Only random and constant initializers of Keras are replaced; any other is returned unchanged.

    Args:
        initializer: An initializer, or its name.

    Raises:
        ValueError: There is no initializer of this name.
    """
    original = keras.initializers.get(initializer)
    if isinstance(original, _RANDOM):
        return lambda shape, dtype=None: compute_in_graph(lambda: original(shape, dtype=dtype))
    if isinstance(original, keras.initializers.Constant):
        return lambda shape, dtype=None: tf.broadcast_to(tf.cast(original.value, dtype), shape)
    return initializer
