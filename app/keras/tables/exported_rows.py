"""The rows of a table in a SavedModel, which is loaded where this package is not installed."""

from __future__ import annotations

import types
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from ...system.python_functions import callers
from ...tables.arrays import row_slices
from ...tables.base import Table
from ...tables.device import DeviceTable, VariableRows
from ...tables.dynamic.dynamic import DynamicTable, replace_lacking
from ...tables.dynamic.keys import STRING
from ...tables.initial import fingerprints
from ...tables.joined import StackedTable

# The modules that trace a model to write it as a SavedModel.
_EXPORTERS = ("keras.src.export.", "tensorflow.python.saved_model.")


def current_export() -> types.FrameType | None:
    """Return the frame of the outermost call that writes a SavedModel now, or None."""
    exports = list(callers(_EXPORTERS))
    return exports[-1] if exports else None


def export_rows(table: Table) -> tf.Module:
    """Return a callable module from ids or keys (N,) to rows (N, D), of TensorFlow operations only.

    The rows are those of this moment, except that a table in host memory is not copied.
    """
    if isinstance(table, DynamicTable):
        return _KeyedRows(table)
    return _NumberedRows(table)


class _NumberedRows(tf.Module):
    """The rows of a table with ids, in one variable."""

    def __init__(self, table: Table):
        """Take the variable that has the rows itself, or copy them if none has."""
        super().__init__()
        whole = table.whole if isinstance(table, StackedTable) else table
        self._start = table.start if isinstance(table, StackedTable) else 0
        self.values = (
            whole.values
            if isinstance(whole, DeviceTable)
            else _copy(table.rows, table.columns, table.gather)
        )

    def __call__(self, ids_N: tf.Tensor) -> tf.Tensor:
        """Return the rows of ids in range, (N, D) float32."""
        return tf.cast(tf.gather(self.values, tf.cast(ids_N, tf.int64) + self._start), tf.float32)


class _KeyedRows(tf.Module):
    """The rows of a dynamic table, in the order of the hashes of their keys."""

    def __init__(self, table: DynamicTable):
        """Copy the keys that have a row now, and their rows, into variables."""
        super().__init__()
        keys, rows = table.key_map.keys(), table.key_map.in_use()
        hashes = table.key_map.hashes(keys)
        order = np.argsort(hashes)
        self._hashes = tf.Variable(hashes[order], trainable=False)
        self._keys = self._hashes
        if table.key_map.kind == STRING:
            self._keys = tf.Variable(tf.constant(keys[order]), trainable=False)
        rows, store = rows[order], table.row_store
        self.values = _copy(len(keys), store.columns, lambda ids: store.gather(rows[ids.numpy()]))
        self._initial_rows = table.row_store.initial_rows

    def __call__(self, keys_N: tf.Tensor) -> tf.Tensor:
        """Return the rows of keys, (N, D) float32; the initial row for a key without a row."""
        hashes_N = fingerprints(keys_N) if keys_N.dtype == tf.string else keys_N
        if not self._hashes.shape[0]:
            return self._initial_rows(hashes_N)
        position_N = tf.searchsorted(self._hashes, hashes_N)
        position_N = tf.minimum(position_N, self._hashes.shape[0] - 1)
        lacking_N = tf.gather(self._keys, position_N) != keys_N
        rows_ND = tf.gather(self.values, position_N)
        return replace_lacking(rows_ND, lacking_N, hashes_N, self._initial_rows)


def _copy(rows: int, columns: int, gather: Callable[[tf.Tensor], tf.Tensor]) -> tf.Variable:
    """Return a new float32 variable (rows, columns), filled part by part with gathered rows.

    The slices of a variable would take five times as long to assign.
    """
    values = tf.Variable(lambda: tf.zeros([rows, columns]), trainable=False)
    for part in row_slices(rows, columns):
        ids_N = tf.range(part.start, part.stop, dtype=tf.int64)
        VariableRows(values).assign(ids_N, gather(ids_N))
    return values
