"""The memory that an optimizer takes for the slots of tables."""

from __future__ import annotations

import collections
import contextlib
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from ...tables.base import Table
from ...tables.disk.file import FileTable
from ...tables.read_through import ReadThroughTable
from .table_memory import DEVICE, FILE, HOST, require_free
from .table_variable import TableVariable
from .table_warnings import LARGE

_ROWS = 3  # of the table for which the slots are made to see their size
_REMEDY = "use an optimizer with less state, such as SGD or RowwiseAdagrad, or a table='file'"


def slot_bytes(optimizer: Any, columns: int, dtype: str, path: str) -> int:
    """Return the bytes of the slots of a row of a table.

    A new optimizer of the same configuration makes the slots of a table of three rows. The sum of
    gradients for `gradient_accumulation_steps` does not count: its rows depend on the batches.

    Args:
        optimizer: An optimizer of Keras or of `lexrow.keras`, built or not. A `MultiOptimizer` is
            asked for the optimizer of this table.
        columns: The number of columns of the table.
        dtype: The dtype of the table.
        path: The path of its variable.
    """
    *scopes, name = path.split("/")
    with contextlib.ExitStack() as stack, tf.init_scope():
        for scope in scopes:
            stack.enter_context(keras.name_scope(scope))
        table = keras.Variable("zeros", (_ROWS, columns), dtype, name=name)
        table.is_table = True  # read by the optimizers of lexrow.keras
        while (inner := _inner(optimizer, table)) is not None:
            optimizer = inner
        copy = type(optimizer).from_config(optimizer.get_config())
        copy.build([table])
    slots = [v for v in copy.variables if len(v.shape) == 2 and v.shape[0] == _ROWS]
    return sum(math.prod(v.shape[1:]) * tf.as_dtype(v.dtype).size for v in slots)


def require_room_for_slots(optimizer: Any, variables: Iterable[Any]) -> None:
    """Check that the slots of all tables fit, before one is made.

    Tables of less than 16 MiB together are not checked, nor those under a `tf.distribute` strategy,
    nor an optimizer of another package, whose configuration need not make it again.

    Args:
        optimizer: The optimizer, which is not built.
        variables: The variables that it will train.

    Raises:
        ValueError: Host memory or the disk has less free. The memory of a GPU is not checked.
    """
    tables = [variable for variable in variables if getattr(variable, "is_table", False)]
    is_ours = type(optimizer).__module__.startswith(f"{__name__.partition('.')[0]}.")
    if not is_ours or tf.distribute.has_strategy() or sum(map(_bytes, tables)) < LARGE:
        return
    needed: collections.Counter[tuple[str, Path | None]] = collections.Counter()
    for variable in tables:
        row = slot_bytes(optimizer, variable.shape[1], variable.dtype, variable.path)
        table = variable.table if isinstance(variable, TableVariable) else None
        if isinstance(table, ReadThroughTable):
            needed[_place(table.device), None] += table.cache_map.unpinned * row
            table = table.backing
        place, path = _place(getattr(table, "device", variable.value.device)), None
        if isinstance(table, FileTable):
            place, path = FILE, table.path
        needed[place, path] += _rows(variable) * row
    names = ", ".join(variable.path for variable in tables)
    for (place, path), count in needed.items():
        taker = f"{names}: the optimizer state of {type(optimizer).__name__}"
        require_free({place: count}, taker, _REMEDY, path)


def _inner(optimizer: Any, table: keras.Variable) -> Any:
    """Return the optimizer of a table that this optimizer wraps, or None if it wraps none."""
    if isinstance(optimizer, keras.optimizers.MultiOptimizer):
        return optimizer._optimizer_map(table)
    return getattr(optimizer, "inner_optimizer", None)


def _rows(variable: Any) -> int:
    """Return the rows of a table; those of a dynamic one that it has room for."""
    table: Table | None = getattr(variable, "table", None)
    return variable.shape[0] if table is None else table.rows


def _bytes(variable: Any) -> int:
    """Return the bytes of the rows of a table."""
    return _rows(variable) * variable.shape[1] * tf.as_dtype(variable.dtype).size


def _place(device: str) -> str:
    """Return whose memory a device has, `DEVICE` or `HOST`."""
    return DEVICE if "GPU" in device else HOST
