"""Functions that read the graph of a traced function: operations, shapes, numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

# Operations that call functions: the attributes that name the functions, and the number of inputs
# before the arguments.
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

# The index of the input with the first dimension of the result, or with its whole shape.
_FIRST_BY = {f"UnsortedSegment{name}": 2 for name in ("Sum", "Prod", "Max", "Min")}
_SHAPED_BY = {"Fill": 0, "BroadcastTo": 1, "ScatterNd": 2}
_MOST_DIMENSIONS = 16  # a longer vector is not a shape


def executed(graph: tf.Graph) -> list[tf.Operation]:
    """Return the operations that run when a function is called, in the order of the graph.

    The outputs and the control outputs need them; TensorFlow removes other operations. Operations
    of inner functions are not included.
    """
    waiting = [tensor.op for tensor in graph.outputs] + list(graph.control_outputs)
    seen = set()
    while waiting:
        operation = waiting.pop()
        if operation.name not in seen:
            seen.add(operation.name)
            waiting += [tensor.op for tensor in operation.inputs] + operation.control_inputs
    return [operation for operation in graph.get_operations() if operation.name in seen]


def called_graphs(operation: tf.Operation) -> list[tf.Graph]:
    """Return the graphs of the functions that an operation calls, in the order of `CALLS`."""
    attributes, _ = CALLS.get(operation.type, ((), 0))
    values = [operation.get_attr(attribute) for attribute in attributes]
    functions = [f for value in values for f in (value if isinstance(value, list) else [value])]
    return [operation.graph._get_function(function.name).graph for function in functions]


def shape_of(tensor: tf.Tensor, known: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Return the shape of a tensor, or None if it is known only when the function runs.

    TensorFlow infers shapes within one function. This function also uses numbers from its caller.

    Args:
        known: The numbers from the caller, see `number`.
    """
    shape, op = tensor.shape, tensor.op
    if not shape.is_fully_defined() and op.type in _SHAPED_BY:
        sizes = number(op.inputs[_SHAPED_BY[op.type]], known)
        shape = shape if sizes is None else tf.TensorShape(sizes)
    elif not shape.is_fully_defined() and op.type in _FIRST_BY and shape.rank:
        size = number(op.inputs[_FIRST_BY[op.type]], known)
        shape = shape if size is None else tf.TensorShape([int(size), *shape[1:]])
    return tuple(shape) if shape.is_fully_defined() else None


def number(tensor: tf.Tensor, known: Mapping[str, Any]) -> np.ndarray | None:
    """Return the constant value of a tensor that could be a shape or a part of one.

    Return None if the dtype is no integer, or if the value is not known before the run. Of a
    constant with 16 elements or more, the value counts as not known.

    Args:
        known: The arguments of the function, by the names of its inputs. Only NumPy arrays are
            used; other values are ignored.
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
