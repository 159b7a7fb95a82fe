"""Python functions in TensorFlow's graphs, which are freed with the graphs that call them.

`tf.numpy_function` and `tf.data.Dataset.from_generator` keep their functions, and all that these
refer to, until the process ends. The functions of this module give TensorFlow a weak reference.

TensorFlow raises an error of its own where a Python function in a graph fails. That error has the
text of the original one, but not its type. So `call_python` records the type and the text here.
"""

from __future__ import annotations

import collections
import contextlib
import inspect
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from ..errors import RunError

# The types and texts of the newest errors. An error itself would keep the table that raised it.
_raised: collections.deque[tuple[type[RunError], str]] = collections.deque(maxlen=64)


def numpy_function(
    function: Callable, inputs: Sequence[tf.Tensor], result: tf.DType | Sequence[tf.DType]
) -> Any:
    """Add an operation to the graph that calls a function of arrays (see `tf.numpy_function`).

    The function lives as long as a graph that is being traced, also an outer one.

    Args:
        result: The dtype of the array that it returns, or the dtype of each.
    """
    _keep_with_graphs(function)
    return tf.numpy_function(_Weak(function), inputs, result)


def from_generator(
    function: Callable[..., Iterator[Any]],
    signature: Any,
    args: tuple[tf.Tensor, ...] | None = None,
    name: str | None = None,
) -> tf.data.Dataset:
    """Return a dataset of generated elements (see `tf.data.Dataset.from_generator`).

    The function lives as long as the dataset, datasets made from it, their iterators, and the
    graphs that are being traced.

    Args:
        function: Takes the arrays of `args` and returns an iterator over the elements.
        name: The name of the stage in a profile.
    """
    _keep_with_graphs(function)
    dataset = tf.data.Dataset.from_generator(
        _Weak(function), args=args, output_signature=signature, name=name
    )
    dataset.python_function = function
    return dataset


class _Weak:
    """A function that does not keep the one that it calls."""

    def __init__(self, function: Callable):
        self._function = weakref.ref(function)

    def __call__(self, *arrays: Any) -> Any:
        """Call the function; AssertionError if it is gone."""
        function = self._function()
        assert function is not None, "a graph calls a Python function that was freed"
        return function(*arrays)


def _keep_with_graphs(function: Callable) -> None:
    """Let the graph that is being traced, and all that it is traced in, keep a function.

    A function that is traced inside of another one can be called by a third. In eager mode there is
    no graph.
    """
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    while graph is not None:
        graph.python_functions = [*getattr(graph, "python_functions", []), function]
        graph = getattr(graph, "outer_graph", None)
        if not hasattr(graph, "outer_graph"):  # the graph of the process, which never ends
            return


def call_python(
    function: Callable, inputs: Sequence[tf.Tensor], result: tf.DType | None = None
) -> tf.Tensor | None:
    """Add an operation to the graph that calls a Python function of arrays each time it runs.

    TensorFlow runs the calls of one tf.function in the order in which they were traced. If the
    function raises a `RunError`, this is recorded for `table_errors`. XLA cannot compile the
    operation. The function is freed with the graph.

    Args:
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
