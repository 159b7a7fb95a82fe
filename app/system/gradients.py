"""Custom gradients that are freed with the graph that they are part of."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import ops  # no public function removes a gradient


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
