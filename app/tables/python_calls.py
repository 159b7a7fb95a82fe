"""Calls of Python functions by the graph of a step, whose errors keep their type.

TensorFlow raises an error of its own where a Python function in a graph fails. That error has the
text of the original one, but not its type. So a call records the original error here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf

from ..errors import RunError

_raised: list[RunError] = []  # since the last `table_errors` began


def call_python(
    function: Callable, inputs: Sequence[tf.Tensor], result: tf.DType | None = None
) -> tf.Tensor | None:
    """Call a function of arrays whenever the graph runs, like `tf.numpy_function`.

    Args:
        function: Takes arrays and returns an array. A `RunError` that it raises is recorded.
        inputs: The tensors whose values it is given.
        result: The dtype of the array that it returns, or None if it returns nothing.
    """

    def record_errors(*arrays):
        try:
            return function(*arrays)
        except RunError as error:
            _raised.append(error)
            raise

    return tf.numpy_function(record_errors, inputs, [] if result is None else result)


@contextlib.contextmanager
def table_errors() -> Iterator[None]:
    """Raise the `RunError` of a table where TensorFlow raises its own error in place of it."""
    _raised.clear()
    try:
        yield
    except tf.errors.UnknownError as error:  # its code for an error of Python that it cannot map
        if not _raised:
            raise
        raise _raised[0] from error
