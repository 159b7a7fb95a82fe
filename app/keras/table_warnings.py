"""Warnings about steps that read whole tables, and the name and size of a variable for them."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import keras
import tensorflow as tf

from .. import __name__ as PACKAGE
from .table_variable import TableVariable


def warn_of_whole_read(variable: Any) -> None:
    """Warn if the step being traced has also read the whole of a table that it updates by row.

    Does nothing in eager mode, under XLA and for a `TableVariable`.

    Args:
        variable: The table.
    """
    if tf.executing_eagerly() or isinstance(variable, TableVariable):
        return  # a `TableVariable` has no rows to copy
    handle = (variable.value if isinstance(variable, keras.Variable) else variable).handle
    graph, readers = tf.compat.v1.get_default_graph(), set()
    while graph is not None:  # the update may be in a branch of the step
        if graph._get_control_flow_context() is not None:
            return  # under XLA, a read of the whole table does not copy it
        if isinstance(graph, tf.__internal__.FuncGraph):
            readers |= {operation.type for operation in graph.capture(handle).consumers()}
        graph = getattr(graph, "outer_graph", None)
    if "ReadVariableOp" in readers:
        warnings.warn(
            f"{variable_name(variable)} ({variable_bytes(variable):,} bytes) is copied as a whole "
            "at each step: keras.layers.Embedding and keras.ops.take read it so; "
            f"{PACKAGE}.keras.RowEmbedding reads the rows of the batch, and "
            f"{PACKAGE}.keras.audit(model) tells more",
            stacklevel=2,
        )


def is_scaled_by_keras() -> bool:
    """Return whether the call stack has a LossScaleOptimizer of Keras, which reads whole gradients.

    The LossScaleOptimizer of `app.keras` does not count.
    """
    frame = inspect.currentframe()
    while frame := frame.f_back:
        owner = frame.f_locals.get("self")
        if isinstance(owner, keras.optimizers.LossScaleOptimizer):
            return not getattr(owner, "checks_rows", False)
    return False


def variable_name(variable: Any) -> str:
    """Return the path of a variable.

    Args:
        variable: A variable of Keras or TensorFlow.
    """
    return getattr(variable, "path", variable.name.removesuffix(":0"))


def variable_bytes(variable: Any) -> int:
    """Return the size of a variable in bytes.

    Args:
        variable: A variable of Keras or TensorFlow.
    """
    return variable.shape.num_elements() * tf.as_dtype(variable.dtype).size
