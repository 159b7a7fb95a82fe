"""Python functions in TensorFlow's graphs, which are freed with the graphs that call them.

`tf.numpy_function`, `tf.data.Dataset.from_generator` and `tf.custom_gradient` keep their functions,
and all that these refer to, until the process ends. The functions of this module give TensorFlow a
weak reference.

TensorFlow raises an error of its own where a Python function in a graph fails. That error has the
text of the original one, but not its type. So `call_python` records the type and the text here.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import inspect
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import ops  # no public function removes a gradient

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
    keep_with_graphs(function)
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
    keep_with_graphs(function)
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


def graphs_in_trace() -> Iterator[tf.Graph]:
    """Yield the graph that is traced now, and the graphs around it, the innermost first."""
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        yield graph
        graph = getattr(graph, "outer_graph", None)


def keep_with_graphs(kept: Any) -> None:
    """Let the graph that is being traced, and all that it is traced in, keep an object.

    A function that is traced inside of another one can be called by a third. In eager mode there is
    no graph.
    """
    for graph in () if tf.executing_eagerly() else graphs_in_trace():
        if hasattr(graph, "outer_graph"):  # else the graph of the process, which never ends
            graph.kept_objects = [*getattr(graph, "kept_objects", []), kept]


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with a custom gradient, as `tf.custom_gradient` does.

    TensorFlow registers each custom gradient of a graph until the process ends
    (`_graph_mode_decorator` of its `custom_gradient.py`). The gradient holds its graph, and a graph
    holds the variables that it reads, so no table of a deleted model would ever be freed. Here the
    graph holds the gradient, and the registry a weak reference.

    Args:
        function: Takes tensors; returns tensors, and a function from their gradients to those of
            the arguments.
    """
    differentiable = tf.custom_gradient(function)

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        """Call the function, and tie its gradient to the graph that is being traced."""
        result = differentiable(*arguments)
        if not tf.executing_eagerly():
            _tie_to_graph(tf.nest.flatten(result)[0].op)
        return result

    return call


def _tie_to_graph(operation: tf.Operation) -> None:
    """Let the graph of an operation hold its custom gradient, instead of TensorFlow's registry."""
    graph, registry = operation.graph, ops.gradient_registry._registry
    name = operation.get_attr("_gradient_op_type").decode()
    gradient = registry[name]["type"]
    reference = weakref.ref(gradient)
    registry[name]["type"] = lambda *arguments: reference()(*arguments)
    graph.custom_gradients = [*getattr(graph, "custom_gradients", []), gradient]
    weakref.finalize(graph, registry.pop, name)


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


def callers(modules: str | tuple[str, ...] = "") -> Iterator[types.FrameType]:
    """Yield the frames of the call stack, the nearest first.

    Args:
        modules: What the names of the modules begin with whose frames are wanted.
    """
    frame = inspect.currentframe()
    while frame := frame.f_back:
        if frame.f_globals.get("__name__", "").startswith(modules):
            yield frame


def locals_of_call(modules: str, *names: str) -> Mapping[str, Any]:
    """Return the local variables of the nearest function in the call stack that has a name.

    Args:
        modules: What the name of its module begins with.
        names: The names of functions, one of which it has.

    Returns:
        The variables by name; empty if no such function is being called.
    """
    frames = (frame for frame in callers(modules) if frame.f_code.co_name in names)
    return next((frame.f_locals for frame in frames), {})


def under_vectorized_map() -> bool:
    """Return whether the function of a `tf.vectorized_map` is traced now."""
    return any(callers("tensorflow.python.ops.parallel_for.control_flow_ops"))


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
