"""Calls of Python functions by the graph of a step, whose errors keep their type.

TensorFlow raises an error of its own where a Python function in a graph fails. That error has the
text of the original one, but not its type. So a call records the type and the text here.
"""

from __future__ import annotations

import collections
import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf

from ..errors import RunError
from ..system.python_functions import numpy_function

# The types and texts of the newest errors. An error itself would keep the table that raised it.
_raised: collections.deque[tuple[type[RunError], str]] = collections.deque(maxlen=64)


def call_python(
    function: Callable, inputs: Sequence[tf.Tensor], result: tf.DType | None = None
) -> tf.Tensor | None:
    """Add an operation to the graph that calls a Python function of arrays each time it runs.

    TensorFlow runs the calls of one tf.function in the order in which they were traced. If the
    function raises a `RunError`, this is recorded for `table_errors`. XLA cannot compile the
    operation. The function is freed with the graph (see `system.python_functions`).

    Args:
        function: Takes arrays and returns an array.
        inputs: The tensors whose values it is given.
        result: The dtype of the array that it returns, or None if it returns nothing.

    Returns:
        The result as a tensor of unknown shape. Not to be used without `result`.
    """

    def record_errors(*arrays):
        """Call the function; a `RunError` is recorded before it is raised again."""
        try:
            return function(*arrays)
        except RunError as error:
            _raised.append((type(error), str(error)))
            raise

    return numpy_function(record_errors, inputs, [] if result is None else result)


def under_vectorized_map() -> bool:
    """Return whether the function of a `tf.vectorized_map` is traced now."""
    frame = inspect.currentframe()
    while frame := frame.f_back:
        if frame.f_globals.get("__name__") == "tensorflow.python.ops.parallel_for.control_flow_ops":
            return True
    return False


@contextlib.contextmanager
def table_errors() -> Iterator[None]:
    """Convert an UnknownError of TensorFlow in the block to the `RunError` of `call_python`.

    Other errors pass.

    Raises:
        RunError: A function of `call_python` raised one with the same text.
    """
    try:
        yield
    except tf.errors.UnknownError as error:  # its code for an error of Python that it cannot map
        for kind, text in list(_raised):
            if text in error.message:
                raise kind(text) from error
        raise
