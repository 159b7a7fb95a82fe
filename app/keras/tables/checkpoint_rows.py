"""The rows of a table as one tensor, for `tf.train.Checkpoint`, which writes tensors as a whole."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from tensorflow.python.checkpoint import tensor_callable  # no public module has it

from ...tables.base import Table
from ...tables.device import DeviceTable
from ...tables.disk.file import FileTable
from ...tables.dynamic.row_store import RowStore
from ...tables.read_through import ReadThroughTable


def rows_to_save(
    table: Table, dtype: tf.DType, copy: Callable[[], np.ndarray]
) -> tensor_callable.Callable:
    """Return the rows of a table for the saver of TensorFlow, which reads them as it writes them.

    They are not copied if the table has them in one variable of the host or in a file; those of a
    file are mapped into memory. A table on a GPU is copied to the host, and a sharded one with
    `copy`. The rows of a dynamic table are copied unless all are in use, or a row has a multiple
    of 64 bytes.

    Cached rows are written to the table below the cache, now. If another thread reads or writes
    rows of a variable while it is saved, as that of `prefetch_rows` may, TensorFlow copies it.

    Args:
        table: The table. A dynamic one is given by its `RowStore`.
        dtype: The dtype in which the table stores rows.
        copy: Returns all rows, for a table that has them in several places.

    Returns:
        An object that TensorFlow's saver calls for the tensor (V, D), in the dtype of the table.
    """
    if isinstance(table, ReadThroughTable):
        table.flush()
        return rows_to_save(table.backing, dtype, copy)

    def read() -> tf.Tensor:
        if isinstance(table, RowStore):
            return _values(table)[: table.used]
        if isinstance(table, DeviceTable):
            return _values(table)
        if isinstance(table, FileTable):
            return _shared(table.mapped())
        return tf.constant(copy())

    with tf.device("CPU:0"):  # by its full name: for several names the saver traces a function
        device = tf.zeros([]).device
    return tensor_callable.Callable(read, dtype, device)


def _values(table: DeviceTable) -> tf.Tensor:
    """Return the values of a table in host memory, without a copy if they are there."""
    # A read of a variable whose rows were gathered or written copies it. This one does not, and
    # the next write does not either, once the saver has let go of the tensor.
    values = table.values.read_value_no_copy()
    with tf.device("CPU:0"):
        return tf.identity(values)


def _shared(rows_VD: np.ndarray) -> tf.Tensor:
    """Return an array as a tensor that shares its memory, which must begin at a page of memory."""
    dtype = tf.as_dtype(rows_VD.dtype)
    if dtype == tf.bfloat16:  # which numpy does not export
        rows_VD = rows_VD.view(np.uint16)
    tensor = tf.experimental.dlpack.from_dlpack(rows_VD.__dlpack__())
    return tf.bitcast(tensor, dtype) if dtype == tf.bfloat16 else tensor
