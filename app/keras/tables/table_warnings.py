"""Warnings about steps that read whole tables, and the name and size of a variable for them."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from ...system.python_functions import graphs_in_trace
from ...system.xla import under_xla
from ...tables.cached import CachedTable
from ..backend import row_constraint
from .table_variable import TableVariable, step_that_reads

# In bytes. A dense gradient of a smaller table costs less than a millisecond.
LARGE = 16 << 20


class StockOptimizerWarning:
    """False as a bool; warns once if the optimizer that reads it writes all rows of a large table.

    It takes the place of False in `keras.Variable.overwrite_with_gradient`, which an optimizer
    of Keras reads in each step that has a gradient of the variable.
    """

    def __init__(self, variable: keras.Variable):
        self._name, self._bytes = variable_name(variable), variable_bytes(variable)
        self._is_done = self._bytes < LARGE

    def __bool__(self) -> bool:
        """Return False; warn once, when the step of an optimizer reads it."""
        if not self._is_done and (optimizer := _find_stock_optimizer()) is not None:
            self._is_done = True
            kind = type(optimizer).__name__
            warnings.warn(
                f"keras.optimizers.{kind} reads and writes every row of {self._name} "
                f"({self._bytes:,} bytes) at each step; compile with an optimizer of "
                "lexrow.keras, such as LazyAdam, which updates the rows of the batch",
                stacklevel=2,
            )
        return False


def _find_stock_optimizer() -> Any:
    """Return the optimizer of Keras that makes a step now; None if it updates rows alone."""
    optimizer = step_that_reads().get("self")
    # The scatter of plain SGD changes rows alone where XLA compiles it.
    is_sgd = isinstance(optimizer, keras.optimizers.SGD) and not optimizer.momentum
    return None if is_sgd and under_xla() else optimizer


def warn_of_whole_table(table: Any) -> None:
    """Warn of parts of a step that read or write the whole of a table with a row-sparse gradient.

    These are constraints that are not by row and, if a step is traced without XLA, whole reads.
    """
    constraint = getattr(table, "constraint", None)
    if constraint is not None and not row_constraint(table):
        warnings.warn(
            f"the constraint {type(constraint).__name__} of {variable_name(table)} reads and "
            "writes every row at each step; lexrow.keras.RowEmbedding has those by row",
            stacklevel=2,
        )
    if tf.executing_eagerly() or under_xla() or isinstance(table, TableVariable):
        return  # XLA reads a whole table without a copy; a `TableVariable` is gathered
    handle = (table.value if isinstance(table, keras.Variable) else table).handle
    readers = set()
    for graph in graphs_in_trace():  # the update may be in a branch of the step
        if isinstance(graph, tf.__internal__.FuncGraph):
            readers |= {operation.type for operation in graph.capture(handle).consumers()}
    if "ReadVariableOp" in readers:
        warnings.warn(
            f"{variable_name(table)} ({variable_bytes(table):,} bytes) is copied as a whole "
            "at each step: keras.layers.Embedding and keras.ops.take read it so; "
            "lexrow.keras.RowEmbedding reads the rows of the batch, and "
            "lexrow.keras.audit(model, batch) tells more",
            stacklevel=2,
        )


def warn_of_dense_gradient(variable: Any) -> None:
    """Warn that the gradient of a variable is dense, if the variable is a table.

    Args:
        variable: The variable; it is a table if it is marked as one or named `embeddings`.
    """
    name = variable_name(variable)
    if getattr(variable, "is_table", False) or name.endswith("/embeddings"):
        warnings.warn(
            f"the gradient of {name} is dense: every one of its {variable.shape[0]:,} rows is read "
            "and written at each step; lexrow.keras.audit(model, batch) finds out why",
            stacklevel=2,
        )


def log_missing_prefetch(tables: Iterable[Any]) -> None:
    """Log in one line, once, which tables have a cache that no `prefetch_rows` fills."""
    lacking = []
    for variable in tables:
        table = variable.table if isinstance(variable, TableVariable) else None
        if isinstance(table, CachedTable) and table.lacks_prefetch:
            lacking.append(variable.path)
            table.lacks_prefetch = False
    if lacking:
        logging.getLogger(__name__).warning(
            "%s: hot_rows is given, but the steps are slower than with lexrow.keras.prefetch_rows"
            "(dataset, model), which loads the rows of the next batches into the cache",
            ", ".join(lacking),
        )


def variable_name(variable: Any) -> str:
    """Return the path of a variable."""
    return getattr(variable, "path", variable.name.removesuffix(":0"))


def variable_bytes(variable: Any) -> int:
    """Return the size of a variable in bytes."""
    return variable.shape.num_elements() * tf.as_dtype(variable.dtype).size
