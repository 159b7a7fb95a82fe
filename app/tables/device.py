"""A table in the memory of one device, and its variable, which is never read or copied whole."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context  # the public options are of the whole process

from ..errors import RunError
from ..system.checked_files import missing
from ..system.xla import under_xla
from ..types import HOST
from . import row_files
from .arrays import row_slices
from .base import Layout, Slot, Table
from .initial import Constant, Initial, Unwritten, all_rows
from .rounding import RoundedTable

# The name of every variable of `host_variable`. Code that places variables knows them by it.
ON_HOST = "on_host"


def host_variable(
    values: np.ndarray | Callable[[], tf.Tensor], dtype: tf.DType | None = None
) -> tf.Variable:
    """Make a variable in host memory, not trained, for operations that prepare the ids of a step.

    It is a variable because a graph would hold a large constant once for each use. Replicas of one
    process share it: a copy on each GPU would be copied back as a whole in every step.
    """
    with tf.device(HOST):
        return tf.Variable(values, dtype=dtype, trainable=False, name=ON_HOST)


class PreparedValues:
    """Values from which the ids of a step are prepared: in host memory, as `host_variable`.

    A step that XLA compiles prepares its ids itself, so it has a copy on its device. The copy is
    made when the step is traced. It is uint32 for int32: a GPU has no kernels for its variables.
    """

    def __init__(self, values: np.ndarray | Callable[[], tf.Tensor]):
        self._copies = {False: host_variable(values)}

    def read(self) -> tf.Variable:
        """Return the variable to read in the graph that is being traced."""
        by_xla = under_xla()
        if by_xla not in self._copies:
            with tf.init_scope():  # on the device on which the step is called
                with tf.device(HOST):
                    values = self._copies[False].read_value()
                    if values.dtype == tf.int32:
                        values = tf.cast(values, tf.uint32)
                # A function that creates a variable of the usual kind is traced twice.
                self._copies[by_xla] = tf.Variable(
                    values, trainable=False, experimental_enable_variable_lifting=False
                )
        return self._copies[by_xla]

    def scatter(self, changes: tuple[Any, Any], on_device: tuple[tf.Tensor, tf.Tensor]) -> None:
        """Replace the values at some indices, also for graphs that are already traced.

        Args:
            changes: The indices, integers (N,), and their new values, in host memory.
            on_device: The same in the memory of the device of the steps, as its copy has them.
        """
        for by_xla, copy in self._copies.items():
            indices_N, values_N = on_device if by_xla else changes
            with tf.device(copy.device):
                tf.raw_ops.ResourceScatterUpdate(
                    resource=copy.handle, indices=indices_N, updates=values_N
                )

    def assign_first(self, values_N: np.ndarray) -> None:
        """Replace the first N values, also for graphs that are already traced."""
        for copy in self._copies.values():
            copy[: len(values_N)].assign(values_N)


def compute_in_graph(make: Callable[[], tf.Tensor]) -> tf.Tensor:
    """Return `make()`, computed without temporary copies of the result.

    A random initial value is drawn, scaled and shifted. Eager mode holds three copies of it for
    that, a graph works in place and holds one. TensorFlow's constant folding is switched off
    meanwhile, for this thread: it would compute the whole value once, only to see that it is too
    large to keep.
    """
    with _without_folding():
        # The function itself is not called: TensorFlow counts calls that trace and warns of them.
        return tf.function(make, autograph=False).get_concrete_function()()


@contextlib.contextmanager
def _without_folding() -> Iterator[None]:
    """Switch off constant folding in the functions that this thread calls within the context."""
    eager = context.context()
    former = eager.function_call_options
    settings = tf.compat.v1.ConfigProto.FromString(former.config_proto_serialized)
    rewriting = settings.graph_options.rewrite_options
    rewriting.constant_folding = rewriting.OFF
    eager.function_call_options = context.FunctionCallOptions(config_proto=settings)
    try:
        yield
    finally:
        eager.function_call_options = former


def named_variables(root: tf.Module) -> Iterator[tuple[tuple[str, ...], tf.Variable]]:
    """Yield the variables of a table and of its slots.

    Yields:
        A tuple of the attribute names that lead to a variable, and the variable.
    """
    for name, child in tf.train.TrackableView(root).children(root).items():
        if isinstance(child, tf.Variable):
            yield (name,), child
        else:
            yield from (((name, *rest), variable) for rest, variable in named_variables(child))


class VariableRows:
    """Row access to a variable of shape (V, D) and any float dtype; rows are float32 outside.

    Ids are int32 or int64 and are not checked. For an id out of range TensorFlow raises on a CPU; a
    GPU reads zeros and writes nothing; XLA takes the nearest row. `tables.id_checks.check_ids`
    checks them.

    Args:
        values: The variable. It may be one of a `tf.distribute` strategy: inside a replica, that
            replica's copy is read and written. Outside of replicas the first copy is read, and all
            copies are written.
    """

    def __init__(self, values: tf.Variable):
        self.values = values

    def locate(self, ids_U: tf.Tensor) -> tf.Tensor:
        """Return the ids: rows are stored by id; see `Table.locate`."""
        return ids_U

    def gather(self, ids_U: tf.Tensor) -> tf.Tensor:
        """Return the rows of the given ids; see `Table.gather`."""
        # tf.gather would read the whole of a distributed variable.
        rows_UD = tf.raw_ops.ResourceGather(
            resource=self._copies()[0].handle, indices=ids_U, dtype=self.values.dtype
        )
        return tf.cast(rows_UD, tf.float32)

    def assign(self, ids_U: tf.Tensor, rows_UD: tf.Tensor) -> None:
        """Replace the rows of the given ids in every copy, rounded to the nearest of the dtype.

        There are several copies only outside of the replicas of a strategy.

        On a CPU this copies whole rows, 3 to 5 times faster than ResourceScatterAdd, which has an
        Eigen expression for each row (2,048 ids of 100 columns: 45 and 155 microseconds).
        """
        for copy in self._copies():
            tf.raw_ops.ResourceScatterUpdate(
                resource=copy.handle, indices=ids_U, updates=tf.cast(rows_UD, self.values.dtype)
            )

    def _copies(self) -> Sequence[tf.Variable]:
        """Return the variables to write, of which the first is the one to read.

        This is the variable itself if it is not distributed, or inside a replica; else all local
        copies of it.
        """
        if not isinstance(self.values, tf.distribute.DistributedValues):
            return (self.values,)
        if tf.distribute.has_strategy():
            # There is a handle in a replica, and where a strategy updates its copies one by one.
            with contextlib.suppress(ValueError):
                _ = self.values.handle
                return (self.values,)
        return self.values.distribute_strategy.experimental_local_results(self.values)


class DeviceTable(RoundedTable, VariableRows):
    """A `tables.base.Table` in the memory of the device that is current when it is made.

    Args:
        initial: A function from a shape to float32 values. It is called once, so that no second
            copy of the table stays in memory.
        slots: The optimizer state of each row, by name. It is made here: made within the trace of a
            step, its initial values would take their memory twice.
    """

    grows = False  # whether a snapshot may have fewer rows

    def __init__(
        self,
        rows: int,
        columns: int,
        initial: Initial,
        dtype: tf.DType = tf.float32,
        slots: Mapping[str, Slot] | None = None,
        **options: Any,
    ):
        values = tf.Variable(
            lambda: initial_values(initial, (rows, columns), dtype), trainable=False, name="values"
        )
        RoundedTable.__init__(self, rows, columns, dtype, **options)
        VariableRows.__init__(self, values)
        self.device = values.device
        self.add_slots(slots or {})

    def assign_exact(self, ids_U: tf.Tensor, rows_UD: tf.Tensor) -> None:
        """Replace rows without a random draw; see `RoundedTable.assign_exact`."""
        VariableRows.assign(self, ids_U, rows_UD)

    def _make_slot(self, name: str, **options: Any) -> DeviceTable:
        """Return a new table for a slot, on the device of this table; `name` is not used."""
        with tf.device(self.values.device):
            return DeviceTable(self.rows, **options)

    def is_finite(self) -> bool:
        """Return whether every number of every row is finite; slots are not read."""
        return all(bool(tf.reduce_all(tf.math.is_finite(part_ND))) for part_ND in self._parts())

    def layout(self) -> Layout:
        """Return how a checkpoint holds this table: by id."""
        return {"kind": "device"}

    def stores(self) -> dict[str, DeviceTable]:
        """Return this table and its slots, each by the name of its file in a snapshot."""
        return {row_files.VALUES: self, **self.slots}

    def snapshot(self, folder: Path) -> None:
        """Write all rows and slots; see `Checkpointable.snapshot`."""
        for name, store in self.stores().items():
            row_files.write(
                folder / name,
                (tf.cast(part_ND, store.dtype).numpy() for part_ND in store._parts()),
                rows=store.used,
                columns=store.columns,
                dtype=store.dtype.name,
                writes=int(store.writes.read_value()) if store.is_stochastic else 0,
            )

    def commit(self, folders: Sequence[Path]) -> None:
        """Do nothing: a snapshot is complete in itself."""

    def restore(self, folder: Path) -> None:
        """Read the files that `snapshot` wrote; slots that this table does not have are left out.

        Raises:
            DamagedError: The rows are damaged or missing.
            RunError: The snapshot lacks a slot, or has other numbers of rows or columns.
        """
        for name, store in self.stores().items():
            if not row_files.exists(folder / name):
                if store is self:
                    raise missing(folder / name)
                raise RunError(
                    f"{folder} holds no {name!r}; give the --optimizer that it was made with, or "
                    "train in a new workdir"
                )
            store._read(folder / name)

    def _read(self, path: Path) -> None:
        """Replace the rows and the count of writes by the content of a file; see `restore`."""
        manifest = row_files.read_manifest(path)
        rows, columns = manifest["rows"], manifest["columns"]
        has_room = rows <= self.rows if self.grows else rows == self.rows
        if not has_room or columns != self.columns:
            raise RunError(
                f"{path} has shape {(rows, columns)}, where {(self.rows, self.columns)} is asked "
                "for; give the flags and the vocabulary that it was made with, or train in a new "
                "workdir"
            )
        for start, rows_ND in row_files.read_parts(path, manifest):
            self.assign_exact(np.arange(start, start + len(rows_ND)), rows_ND)
        if self.is_stochastic:
            self.writes.assign(manifest["writes"])

    def _parts(self) -> Iterator[tf.Tensor]:
        """Yield all rows that have values, in parts (N, D) float32 on the device of this table."""
        for part in row_slices(self.used, self.columns):
            with tf.device(self.values.device):
                rows_ND = self.gather(tf.range(part.start, part.stop, dtype=tf.int64))
            yield rows_ND


class InPlace:
    """Prefetches nothing: the steps train on the tables themselves.

    The training loop calls `prefetch` once for all batches, `locate` before each call of steps,
    `write_back` before a checkpoint, `values` for each log line, and `close` at the end.

    Attributes:
        tables: The tables that the steps train on, by name.
        looks_up: Whether it looks up the ids of batches on the host, so that they must be there.
    """

    looks_up = False

    def __init__(self, tables: Mapping[str, Table]):
        self.tables = dict(tables)

    def prefetch(self, batches: Iterable, step: int) -> Iterator:
        """Yield the batches as they are."""
        return iter(batches)

    def locate(self, data: Any, first: tf.Tensor) -> Any:
        """Return a batch as the next call of the train function takes it; here unchanged."""
        return data

    def write_back(self) -> None:
        """Do nothing: no row is cached."""

    def values(self) -> dict[str, float]:
        """Return no metrics."""
        return {}

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def find_elsewhere(tables: Mapping[str, Table]) -> str | None:
    """Return the first table that has rows elsewhere than on the device of the steps, or None."""
    first = None
    for name, table in tables.items():
        if not isinstance(table, DeviceTable):
            return name
        own = table.values.device
        first = first or own
        # The device of a table in host memory is the one to which its rows are copied.
        if own != first or ("GPU" in own) != ("GPU" in table.device):
            return name
    return None


def make_cache(backing: RoundedTable, rows: int) -> DeviceTable:
    """Make a table of zeros on the current device, to hold some rows of another table.

    It stores and rounds rows like the other table, and has no slots. With stochastic rounding it
    continues with the next random draw of the other table.
    """
    options = {"dtype": backing.dtype, "rounding": backing.rounding, "seed": backing.seed}
    cache = DeviceTable(rows, backing.columns, Constant(0.0), **options)
    if backing.is_stochastic:
        cache.writes.assign(backing.writes)
    return cache


def initial_values(initial: Initial, shape: tuple[int, int], dtype: tf.DType) -> tf.Tensor:
    """Return the initial values as `dtype`, if possible without a float32 copy of them.

    There is such a copy if the values cannot be made by id, that is without a method `rows`, and
    the function returns them as float32.
    """
    if isinstance(initial, Unwritten):
        return initial(shape, dtype)
    if isinstance(initial, Constant):
        return tf.fill(shape, tf.constant(initial.value, dtype))
    if not hasattr(initial, "rows"):
        return tf.cast(initial(shape), dtype)
    return all_rows(initial, shape, dtype)
