"""The initial values of tables whose rows are made one by one, from initializers of Keras."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from ...tables.initial import Constant, Initial, Uniform


def by_id(initializer: Any, layer: str) -> Initial:
    """Return the initial values of an initializer as a function of the id.

    Uniform values are other draws than those of Keras: each is a hash of the seed, the id and the
    column.

    Args:
        initializer: An initializer of Keras: zeros, ones, a constant, or RandomUniform(-x, x).
        layer: The name of the layer, for the message.

    Raises:
        ValueError: It is another initializer, which makes whole tables only.
    """
    if isinstance(initializer, keras.initializers.Zeros):
        return Constant(0.0)
    if isinstance(initializer, keras.initializers.Ones):
        return Constant(1.0)
    if isinstance(initializer, keras.initializers.Constant) and np.ndim(initializer.value) == 0:
        return Constant(float(initializer.value))
    if (
        isinstance(initializer, keras.initializers.RandomUniform)
        and initializer.minval == -initializer.maxval
        and isinstance(initializer.seed, int)
    ):
        return Uniform(initializer.maxval, int(initializer.seed))
    raise ValueError(
        f"{layer}: embeddings_initializer={type(initializer).__name__} makes whole tables, where "
        "each row is made by itself; give zeros, ones, a constant, or RandomUniform(-x, x)"
    )
