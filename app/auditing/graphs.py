"""What the graph of a traced function tells without running it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

# Operations that call functions: the attributes that name them, and the inputs before arguments.
CALLS = {
    "PartitionedCall": (("f",), 0),
    "StatefulPartitionedCall": (("f",), 0),
    "If": (("then_branch", "else_branch"), 1),
    "StatelessIf": (("then_branch", "else_branch"), 1),
    "Case": (("branches",), 1),
    "StatelessCase": (("branches",), 1),
    "While": (("cond", "body"), 0),
    "StatelessWhile": (("cond", "body"), 0),
}
# Operations whose results share the buffer of their inputs.
VIEWS = (
    *("Identity", "IdentityN", "StopGradient", "PreventGradient"),
    *("EnsureShape", "Reshape", "ExpandDims", "Squeeze"),
)

# The input that holds the first dimension of the result, and that which holds all of them.
_FIRST_BY = {f"UnsortedSegment{name}": 2 for name in ("Sum", "Prod", "Max", "Min")}
_SHAPED_BY = {"Fill": 0, "BroadcastTo": 1, "ScatterNd": 2}
_MOST_DIMENSIONS = 16  # a longer vector is no shape


def executed(graph: tf.Graph) -> list[tf.Operation]:
    """The operations that the results or effects of a function's graph depend on, in its order."""
    waiting = [tensor.op for tensor in graph.outputs] + list(graph.control_outputs)
    seen = set()
    while waiting:
        operation = waiting.pop()
        if operation.name not in seen:
            seen.add(operation.name)
            waiting += [tensor.op for tensor in operation.inputs] + operation.control_inputs
    return [operation for operation in graph.get_operations() if operation.name in seen]


def shape_of(tensor: tf.Tensor, known: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The tensor's shape, or None where it is known when the function runs only.

    TensorFlow infers shapes within one function. known: numbers from outside it, see `number`.
    """
    shape, op = tensor.shape, tensor.op
    if not shape.is_fully_defined() and op.type in _SHAPED_BY:
        given = number(op.inputs[_SHAPED_BY[op.type]], known)
        shape = shape if given is None else tf.TensorShape(given)
    elif not shape.is_fully_defined() and op.type in _FIRST_BY and shape.rank:
        given = number(op.inputs[_FIRST_BY[op.type]], known)
        shape = shape if given is None else tf.TensorShape([int(given), *shape[1:]])
    return tuple(shape) if shape.is_fully_defined() else None


def number(tensor: tf.Tensor, known: Mapping[str, Any]) -> np.ndarray | None:
    """What a tensor that could be a shape, or a part of one, holds at each run, or None.

    known: by the names of the function's inputs, the arrays that they are called with.
    """
    if not tensor.dtype.is_integer:
        return None
    if isinstance(known.get(tensor.name), np.ndarray):
        return known[tensor.name]
    op = tensor.op
    if op.type in ("Identity", "Cast"):
        return number(op.inputs[0], known)
    if op.type == "StridedSlice" and tensor.shape.rank == 0:
        vector, begin = number(op.inputs[0], known), number(op.inputs[1], known)
        return None if vector is None or begin is None else vector[tuple(begin)]
    size = tensor.shape.num_elements()
    return tf.get_static_value(tensor) if size is not None and size < _MOST_DIMENSIONS else None
