"""What app.keras needs of Keras."""

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
    """ValueError unless Keras runs on TensorFlow."""
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            f"{PACKAGE}.keras needs Keras on TensorFlow, not on {keras.backend.backend()}; "
            "set KERAS_BACKEND=tensorflow before keras is imported"
        )


def in_place(initializer: Any) -> Any:
    """The initializer, giving the same values without temporary copies of them."""
    made = keras.initializers.get(initializer)
    if isinstance(made, _RANDOM):
        return lambda shape, dtype=None: compute_in_graph(lambda: made(shape, dtype=dtype))
    if isinstance(made, keras.initializers.Constant):
        return lambda shape, dtype=None: tf.broadcast_to(tf.cast(made.value, dtype), shape)
    return initializer
