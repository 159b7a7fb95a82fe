"""A table that Keras sees as one of its variables, and its rows in a SavedModel.

A SavedModel is loaded where this package is not installed, so its rows are in plain variables.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.checkpoint import tensor_callable  # no public module has it

# The public classes of variables are read by their handles, without a call of a method.
from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable

from ...system.python_functions import (
    callers,
    custom_gradient,
    graphs_in_trace,
    keep_with_graphs,
    locals_of_call,
    under_vectorized_map,
)
from ...system.scoped import Scoped
from ...system.xla import under_xla
from ...tables.arrays import row_slices
from ...tables.base import Slot, Table
from ...tables.cached import CachedRows
from ...tables.device import DeviceTable, VariableRows
from ...tables.disk.file import FileTable
from ...tables.dynamic.dynamic import DynamicTable, RowsByKey, RowStore, replace_lacking
from ...tables.dynamic.keys import STRING
from ...tables.id_checks import check_ids
from ...tables.initial import fingerprints
from ...tables.joined import JoinedTable, StackedTable
from ...tables.row_reads import rows_to_read
from ..backend import one_copy
from .table_kinds import host_is_near

_VALUE = "VARIABLE_VALUE"  # the name that TensorFlow gives the value of a variable in a checkpoint

# The variables that were looked up and their ids, while a model is traced for its look-ups only.
_Recorded = list[tuple["TableVariable", tf.Tensor]]
_recorded: Scoped[_Recorded | None] = Scoped(None)


_SAMPLE = 4096  # rows of a histogram in TensorBoard
# The modules that trace a model to write it as a SavedModel.
_EXPORTERS = ("keras.src.export.", "tensorflow.python.saved_model.")


class _Handle(BaseResourceVariable):
    """The class of a variable without rows, which has a gradient and whose value is not read.

    Keras makes the variable, which then gets this class.
    """

    _path: str

    def empty(self) -> tf.Tensor:
        """Return the empty value, whose gradient is that of the variable."""
        return super()._read_variable_op()

    def sparse_read(self, indices: Any, name: str | None = None) -> tf.Tensor:
        """Return some rows, of a read of all of them."""
        return tf.gather(self._read_variable_op(), indices, name=name)

    def gather_nd(self, indices: Any, name: str | None = None) -> tf.Tensor:
        """Return some rows or numbers, of a read of all of them."""
        return tf.gather_nd(self._read_variable_op(), indices, name=name)

    def _read_variable_op(self, no_copy: bool = False) -> tf.Tensor:
        """Raise ValueError: every operation on the value would see no rows."""
        raise ValueError(
            f"{self._path} is a table that no step reads as a whole: look its rows up by the "
            "layer, or read all of them by get_weights()"
        )


class HandleVariable(keras.Variable):
    """A Keras variable whose values are not in its TensorFlow variable, and are not read by a step.

    Every operation on it raises ValueError; `numpy`, which a subclass defines, returns the values.
    """

    def __init__(self, shape: tuple[int, ...], dtype: str, **options: Any):
        super().__init__("zeros", shape, dtype, autocast=False, **options)

    def sample(self) -> np.ndarray:
        """Return some of the values, for a histogram: by default all of them."""
        return self.numpy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return all values as `numpy` does, converted if a dtype is given.

        Raises:
            ValueError: A function is traced, in which they would be constants.
        """
        if not tf.executing_eagerly():
            _Handle._read_variable_op(self.value)  # which raises
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} path={self.path}, shape={self.shape}, dtype={self.dtype}>"

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> tf.Tensor:
        """Raise ValueError; but give `sample` to the histograms of Keras' `TensorBoard`."""
        if locals_of_call("keras.src.callbacks.tensorboard", "_log_weights"):
            return tf.convert_to_tensor(self.sample(), dtype, name=name)
        return tf.convert_to_tensor(self.value, dtype, name=name)

    def _initialize_with_initializer(self, initializer: Any) -> None:
        """Create the TensorFlow variable."""
        with one_copy(self.path):
            super()._initialize_with_initializer(initializer)
        self._value: Any
        self._value.__class__, self._value._path = _Handle, self.path

    def _serialize_to_tensors(self) -> dict[str, Any]:
        """Return the empty value for tf.train.Checkpoint and SavedModel."""
        return {_VALUE: self._value.empty()}


class TableVariable(HandleVariable):
    """The rows (V, D) of a table as a Keras variable, wherever the table stores them.

    Keras counts, saves and loads its rows like those of any variable. A step does not read the
    variable as a whole: `look_up` gathers rows, and their gradient is row-sparse. To TensorFlow the
    variable is a handle without rows, to which `tf.GradientTape` gives that gradient. Only the
    optimizers of `lexrow.keras` can apply it: the rows and their slots are not in the handle.

    Attributes:
        is_table: True: marks the variable for the optimizers of `lexrow.keras`.
        overwrite_with_gradient: True: an optimizer of Keras makes no slots, and calls `assign` with
            the gradient. Those of `lexrow.keras` do not read it.
        remedy: What else to do where its gradient would be dense, as the end of a message.
    """

    is_table = overwrite_with_gradient = True
    remedy = ""

    def __init__(self, table: Table, name: str, dtype: str = "float32"):
        super().__init__((0, table.columns), dtype, name=name)
        self.table = table
        # A look-up gives new keys of a dynamic table no rows; an update does.
        self._readable = table.known if isinstance(table, DynamicTable) else table
        # The last call that wrote a SavedModel, and its rows. Held here, they would keep the model.
        self._export: tuple[int, weakref.ref[tf.Module] | None] = 0, None

    @property
    def shape(self) -> tf.TensorShape:
        """The shape (V, D); V is the number of rows that were ever in use in a dynamic table."""
        stored = _stored(self.table)
        rows = stored.used if isinstance(stored, RowStore) else stored.rows
        return tf.TensorShape((rows, stored.columns))

    def check_gradient(self, gradient: Any) -> None:
        """Raise ValueError if a gradient of the table is dense, that of a handle without rows."""
        if isinstance(gradient, tf.Tensor):
            raise ValueError(
                f"the gradient of {self.path} is dense, as after a look-up in tf.vectorized_map; "
                f"look up the rows of all elements before it{self.remedy}"
            )

    def look_up(self, ids: tf.Tensor) -> tf.Tensor:
        """Return the rows of the given ids, with a row-sparse gradient.

        Keys of a dynamic table that have no row read as their initial row, and get none. In a block
        of `record_ids` the ids are recorded, and the rows are zeros. Where a SavedModel is written,
        the rows are read from a copy for it (see `export_rows`).

        Args:
            ids: Ids in range, or keys, of any shape.

        Returns:
            Rows (..., D), float32.

        Raises:
            ValueError: The gradient is traced inside a loop.
        """
        ids_N = tf.reshape(ids, [-1])
        shape = tf.concat([tf.shape(ids), [self.table.columns]], axis=0)
        if (recorded := _recorded.get()) is not None:
            recorded.append((self, ids_N))
            return tf.zeros(shape)
        if self._value is None or current_export():
            return tf.reshape(self.gather(ids_N), shape)

        @custom_gradient
        def gather(_: tf.Tensor):
            """Return the rows (N, D); a gradient by the ignored argument is row-sparse."""
            # tf.vectorized_map has no form of tf.unique, and XLA would sort the ids.
            # Nor are they worth it where a gather costs as little.
            is_cheap = isinstance(self.table, StackedTable) and self._is_near()
            if under_vectorized_map() or under_xla() or is_cheap:
                rows_ND = self._readable.gather(ids_N)
            else:
                ids_U, inverse_N = rows_to_read(ids_N)
                rows_ND = tf.gather(self._readable.gather(ids_U), inverse_N)

            return rows_ND, lambda upstream_ND: self.gradient(upstream_ND, ids_N)

        return tf.reshape(gather(self.watched()), shape)

    def gradient(self, upstream_ND: tf.Tensor, ids_N: tf.Tensor) -> tf.IndexedSlices:
        """Return the gradient of a look-up as slices of the table, repeated ids included.

        Raises:
            ValueError: The gradient is traced inside a loop.
        """
        self._refuse_loop()
        # Tensors that this function makes: an optimizer asks for their dtypes, and a tape around a
        # function takes them out of it. TensorFlow makes a shape of int32 for a branch without a
        # look-up.
        dtype = tf.int32 if self.table.rows < 1 << 31 else tf.int64
        shape = tf.constant([self.table.rows, self.table.columns], dtype)
        return tf.IndexedSlices(upstream_ND, tf.identity(ids_N), shape)

    def gather(self, ids_N: tf.Tensor) -> tf.Tensor:
        """Return the rows (N, D) of some ids as `look_up` does, without a gradient."""
        if self._value is None:  # Keras looks for shapes only, before it makes variables
            return tf.zeros((tf.size(ids_N), self.table.columns))
        if export := current_export():
            return self._rows_of_export(export)(ids_N)
        return self._readable.gather(ids_N)

    def watched(self) -> tf.Tensor:
        """Return an empty tensor, whose gradient a gradient tape gives to the variable.

        Where a SavedModel is written it is none of the variable, which the SavedModel has not.
        """
        if self._value is None or current_export():
            return tf.zeros((0, self.table.columns))
        return self._value.empty()

    def make_slot(self, name: str, columns: int, initial: float) -> TableVariable:
        """Make optimizer state for each row, and return it as a Keras variable.

        Args:
            columns: The numbers of a row's state; 0 for as many as the row has.
        """
        with one_copy(self.path):
            self.table.add_slots({name: Slot(columns, initial)})
        return type(self)(self.table.slots[name], f"{self.path.replace('/', '_')}_{name}")

    def numpy(self) -> np.ndarray:
        """Return all rows, (V, D), in the dtype of the variable."""
        rows_VD = np.empty(tuple(self.shape), self._numpy_dtype)
        for part, rows_ND in self.parts():
            rows_VD[part] = rows_ND
        return rows_VD

    def parts(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Read all rows in order, in parts of about 16 MB; a cache is first written back.

        Yields:
            The ids of a part as a slice, and its rows (any number, D) in the dtype of the variable.
        """
        stored, slices = self._below_cache(), row_slices(*self.shape)
        if isinstance(stored, FileTable):
            yield from zip(slices, stored.parts(), strict=True)
            return
        for part in slices:
            rows_ND = stored.gather(_ids(part)).numpy()
            yield part, rows_ND.astype(self._numpy_dtype, copy=False)

    def sample(self) -> np.ndarray:
        """Return up to 4,096 rows at equal distances, in the dtype of the variable."""
        stored, rows = _stored(self.table), self.shape[0]
        ids_N = np.linspace(0, rows - 1, min(rows, _SAMPLE)).astype(np.int64)
        return stored.gather(tf.constant(ids_N, tf.int64)).numpy().astype(self._numpy_dtype)

    def assign(self, value: Any) -> Any:
        """Replace all rows, part by part, and return them.

        Args:
            value: An array (V, D), which may be one in a file. For a dynamic table these are rows
                by row number, at most as many as its capacity. Their keys are another weight of
                the layer, which `set_weights` compares first (see `KeysOfRows`).

        Raises:
            ValueError: The shape is another one, or the value is a gradient, from an optimizer that
                is not one of `lexrow.keras`.
        """
        # A dense gradient is that of the handle, which has no rows.
        if isinstance(value, tf.IndexedSlices) or (tf.is_tensor(value) and value.shape[0] == 0):
            raise ValueError(
                f"{self.path} is a table with its own rows and slots, which this optimizer does "
                "not know; use one of lexrow.keras, such as LazyAdam, for all variables, or "
                "for this one by keras.optimizers.MultiOptimizer"
            )
        return self._replace(value)

    def _replace(self, value: Any) -> Any:
        """Replace all rows by a value that is no gradient; see `assign`."""
        value = value if hasattr(value, "shape") else np.asarray(value, self._numpy_dtype)
        stored = _stored(self.table)
        fits = value.shape[0] == stored.rows
        if isinstance(stored, RowStore):  # its keys may be restored after its rows
            fits = value.shape[0] <= stored.rows
        if not fits or tuple(value.shape[1:]) != (stored.columns,):
            raise ValueError(
                f"{self.path} has shape {self.shape}, not {tuple(value.shape)}; use a layer of the "
                "size of these rows"
            )
        for part in row_slices(*value.shape):
            stored.assign(_ids(part), tf.cast(value[part], tf.float32))
        return value

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> dict[str, Any]:
        """Return what TensorFlow saves with the variable: in a SavedModel, its rows."""
        children = super()._trackable_children(save_type, **kwargs)
        _, rows = self._export
        if save_type == "savedmodel" and rows is not None and rows() is not None:
            children["rows"] = rows()
        return children

    def _rows_of_export(self, export: types.FrameType) -> tf.Module:
        """Return the rows in the SavedModel that a call writes, the same for all its functions."""
        call, reference = self._export
        rows = reference() if reference is not None and call == id(export) else None
        if rows is None:
            # Another thread is outside of the function that is traced, which may make no variables.
            with concurrent.futures.ThreadPoolExecutor(1) as thread:
                rows = thread.submit(export_rows, self.table).result()
            self._export = id(export), weakref.ref(rows)
        keep_with_graphs(rows)
        return rows

    @property
    def _numpy_dtype(self) -> Any:
        return tf.as_dtype(self.dtype).as_numpy_dtype

    def _is_near(self) -> bool:
        """Return whether the rows are in the memory of the device of the steps."""
        return "GPU" in self.table.device or host_is_near()

    def _refuse_loop(self) -> None:
        """Raise ValueError if the gradient of a loop is traced, which would be dense."""
        if any(type(graph).__name__ == "_WhileBodyGradFuncGraph" for graph in graphs_in_trace()):
            raise ValueError(
                f"{self.path} is looked up inside a loop or RNN, where its gradient would be "
                "dense; look up the rows of all passes before the loop, and pass them to it"
                f"{self.remedy}"
            )

    def _below_cache(self) -> Table:
        """Return the table with all rows, by row number if dynamic; write a cache back to it."""
        stored = _stored(self.table)
        if not isinstance(stored, CachedRows):
            return stored
        stored.flush()
        return stored.backing

    def _serialize_to_tensors(self) -> dict[str, Any]:
        """Return the rows for tf.train.Checkpoint, or for a SavedModel the handle without rows.

        TensorFlow's saver reads them as it writes them. They are not copied if the table has them
        in one variable of the host or in a file; those of a file are mapped into memory. A table on
        a GPU is copied to the host, and so is a sharded one. The rows of a dynamic table are copied
        unless all are in use, or a row has a multiple of 64 bytes. If another thread reads or
        writes rows of a variable while it is saved, as that of `prefetch_rows` may, TensorFlow
        copies it.
        """
        if current_export():  # the SavedModel has the rows beside the handle
            return super()._serialize_to_tensors()
        stored = self._below_cache()

        def read() -> tf.Tensor:
            if isinstance(stored, RowStore):
                return _values(stored)[: stored.used]
            if isinstance(stored, DeviceTable):
                return _values(stored)
            if isinstance(stored, StackedTable):
                return _values(stored.whole, slice(stored.start, stored.start + stored.rows))
            if isinstance(stored, FileTable):
                return _shared(stored.mapped())
            return tf.constant(self.numpy())

        with tf.device("CPU:0"):  # by its full name: for several names the saver traces a function
            device = tf.zeros([]).device
        return {_VALUE: tensor_callable.Callable(read, tf.as_dtype(self.dtype), device)}

    def _restore_from_tensors(self, restored_tensors: dict[str, tf.Tensor]) -> None:
        """Replace the rows by those that tf.train.Checkpoint read, of which there may be none."""
        self._replace(restored_tensors[_VALUE])


def _scatter(name: str) -> Callable[..., Any]:
    """Return the method of a `_WholeHandle` for a method of variables that changes some rows."""

    def scatter(self: _WholeHandle, slices: tf.IndexedSlices, *args: Any, **kwargs: Any) -> Any:
        table: Any = self._variable.table
        ids = check_ids(slices.indices, table.rows, self._path)
        slices = tf.IndexedSlices(slices.values, table.ids_to_write(ids))
        return getattr(table.whole.values, name)(slices, *args, **kwargs)

    return scatter


def _refused(name: str) -> Callable[..., Any]:
    """Return a method of a `_WholeHandle` that raises ValueError."""

    def refuse(self: _WholeHandle, *_: Any, **__: Any) -> None:
        raise ValueError(
            f"{self._path} shares a variable with other tables, which has no {name}; assign all "
            "rows, or give FeatureEmbedding(..., table_stacking=None)"
        )

    return refuse


class _WholeHandle(_Handle):
    """A variable of TensorFlow without rows that reads and writes those of a `StackedVariable`."""

    _variable: StackedVariable

    @property
    def shape(self) -> tf.TensorShape:
        """The shape (V, D)."""
        return self._variable.shape

    def assign(self, value: Any, *_: Any, **__: Any) -> _WholeHandle:
        """Replace all rows."""
        self._variable.assign(tf.convert_to_tensor(value, self.dtype))
        return self

    def assign_add(self, delta: Any, *_: Any, **__: Any) -> _WholeHandle:
        """Add to all rows."""
        return self.assign(self._read_variable_op() + tf.cast(delta, self.dtype))

    def assign_sub(self, delta: Any, *_: Any, **__: Any) -> _WholeHandle:
        """Subtract from all rows."""
        return self.assign(self._read_variable_op() - tf.cast(delta, self.dtype))

    vars().update({name: _refused(name) for name in dir(_Handle) if "scatter_" in name})
    scatter_add, scatter_sub, scatter_update = map(
        _scatter, ("scatter_add", "scatter_sub", "scatter_update")
    )
    _strided_slice_assign = _refused("assignment to a part")

    def _read_variable_op(self, no_copy: bool = False) -> tf.Tensor:
        """Return all rows, (V, D), with a dense gradient."""

        @custom_gradient
        def read(_: tf.Tensor):
            """Return the rows; a gradient by the ignored argument is that by all of them."""
            rows_VD = self._variable.gather(tf.range(self.shape[0], dtype=tf.int64))
            return tf.cast(rows_VD, self.dtype), lambda upstream_VD: upstream_VD

        return read(self._variable.watched())

    def _write_object_proto(self, proto: Any, options: Any) -> None:
        """Describe the handle without rows for a SavedModel, which has the rows beside it."""
        super()._write_object_proto(proto, options)
        proto.variable.shape.CopyFrom(self._shape.as_proto())


class StackedVariable(TableVariable):
    """The rows of one of the tables of a larger variable, as a Keras variable of its own.

    The optimizers of `lexrow.keras` update the rows of all these tables together. Those of Keras,
    and all other code, can read and write it like any variable.
    """

    remedy = ", or give FeatureEmbedding(..., table_stacking=None)"

    @property
    def overwrite_with_gradient(self) -> Any:  # type: ignore[override]
        """As in Keras; but raise ValueError if an optimizer asks for it with a gradient of no rows.

        Optimizers of Keras would take it for the gradient of the rows.
        """
        if step := step_that_reads():
            pairs = zip(step["grads"], step["vars"], strict=True)
            self.check_gradient(next((g for g, own in pairs if own is self), None))
        return self._overwrite_with_gradient

    def check_gradient(self, gradient: Any) -> None:
        """Raise ValueError if a gradient is dense and has no rows; all rows may have one."""
        if gradient is not None and gradient.shape[0] == 0:
            super().check_gradient(gradient)

    @property
    def value(self) -> Any:
        """The variable; zeros (V, D) while Keras looks for shapes only."""
        return tf.zeros(self.shape, self.dtype) if self._value is None else super().value

    def _initialize_with_initializer(self, initializer: Any) -> None:
        """Create the TensorFlow variable."""
        super()._initialize_with_initializer(initializer)
        self._value.__class__, self._value._variable = _WholeHandle, self


def step_that_reads() -> Mapping[str, Any]:
    """Return the locals of the step of an optimizer that reads `overwrite_with_gradient` now.

    They are the optimizer, `self`, its gradients, `grads`, and `vars`. Empty if there is no step.
    """
    name = "_overwrite_variables_directly_with_gradients"
    return locals_of_call("keras.src.optimizers.", name)


def look_up_together(
    variables: Sequence[TableVariable], ids: Sequence[tf.Tensor]
) -> Sequence[tf.Tensor]:
    """Return rows as `TableVariable.look_up` does, read by one operation for several tables.

    Args:
        variables: Those of `StackedTable`s of one variable, which may repeat.
        ids: The ids (N,) for each.

    Returns:
        Rows (N, D) for each, with row-sparse gradients.
    """

    @custom_gradient
    def gather(*_: tf.Tensor):
        """Return the rows; the variables are arguments only for their gradients."""
        tables = [variable.table for variable in variables]
        # Without their slots, which differ where the tables have several optimizers.
        rows_ND = JoinedTable(tables, [{}] * len(tables)).gather(ids)

        def gradients(*upstream: tf.Tensor) -> list[tf.IndexedSlices]:
            return [v.gradient(*pair) for v, *pair in zip(variables, upstream, ids, strict=True)]

        return tf.split(rows_ND, [tf.size(own) for own in ids]), gradients

    return gather(*(variable.watched() for variable in variables))


def is_recording() -> bool:
    """Return whether the code runs in a block of `record_ids`."""
    return _recorded.get() is not None


def record_ids() -> contextlib.AbstractContextManager[Any]:
    """Record the ids that are looked up in the block, where the rows of every table read as zeros.

    Returns:
        A context of a list of the variables that are looked up, each with ids (N,), in order.
    """
    return _recorded.set([])


def _stored(table: Table) -> Table:
    """Return the table by whose ids all rows can be read: by row numbers if it is dynamic."""
    return table.row_store if isinstance(table, RowsByKey) else table


def _ids(part: slice) -> tf.Tensor:
    """Return the ids from the start to the stop of a slice, int64."""
    return tf.range(part.start, part.stop, dtype=tf.int64)


def _values(table: DeviceTable, part: slice = slice(None)) -> tf.Tensor:
    """Return the rows of some ids in host memory, if possible without a copy if they are there."""
    # A read of a variable whose rows were gathered or written copies it. This one does not, and
    # the next write does not either, once the saver has let go of the tensor.
    values = table.values.read_value_no_copy()
    with tf.device(table.values.device):  # nothing else leaves a GPU
        values = values if part == slice(None) else values[part]
    with tf.device("CPU:0"):
        return tf.identity(values)


def _shared(rows_VD: np.ndarray) -> tf.Tensor:
    """Return an array as a tensor that shares its memory, which must begin at a page of memory."""
    dtype = tf.as_dtype(rows_VD.dtype)
    if dtype == tf.bfloat16:  # which numpy does not export
        rows_VD = rows_VD.view(np.uint16)
    tensor = tf.experimental.dlpack.from_dlpack(rows_VD.__dlpack__())
    return tf.bitcast(tensor, dtype) if dtype == tf.bfloat16 else tensor


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
        ids_N = _ids(part)
        VariableRows(values).assign(ids_N, gather(ids_N))
    return values
