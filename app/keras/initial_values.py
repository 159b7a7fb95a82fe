"""The initial values of tables whose rows are made one by one, from initializers of Keras."""

from __future__ import annotations

from typing import Any

import keras

from ..tables.initial import Constant, Initial, Uniform


def by_id(initializer: Any) -> Initial:
    """Return the initial values of an initializer as a function of the id.

    Uniform values are other draws than those of Keras: each is a hash of the seed, the id and the
    column.

    Args:
        initializer: An initializer of Keras: zeros, ones, a constant, or RandomUniform(-x, x).

    Raises:
        ValueError: It is another initializer, which makes whole tables only.
    """
    if isinstance(initializer, keras.initializers.Zeros):
        return Constant(0.0)
    if isinstance(initializer, keras.initializers.Ones):
        return Constant(1.0)
    if isinstance(initializer, keras.initializers.Constant):
        return Constant(float(initializer.value))
    if (
        isinstance(initializer, keras.initializers.RandomUniform)
        and initializer.minval == -initializer.maxval
    ):
        return Uniform(initializer.maxval, int(initializer.seed))
    raise ValueError(
        f"embeddings_initializer={type(initializer).__name__} makes whole tables, where each row "
        "is made by itself; give zeros, ones, a constant, or RandomUniform(-x, x)"
    )
