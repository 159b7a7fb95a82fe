"""The rows of a table in a checkpoint, read without making the table.

A checkpoint holds tables that are variables as TensorFlow saves them, and any other table in a
folder of its own (see `tables.base.Checkpointable`). The file `tables.json` has the layout of each
table. Rows by id are converted from any layout to any other, part by part, so that a run can
continue with another --table.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf

from ..errors import DamagedError, RunError
from ..system.checked_files import list_folder, read_json, reading
from ..system.files import replacing
from ..tables import arrays
from ..tables.base import Layout, Table
from ..tables.disk import file
from ..tables.dynamic import row_store
from ..tables.dynamic.dynamic import KEYS
from ..tables.dynamic.keys import read_keys
from ..tables.row_reads import row_slices
from ..tables.sharded import ShardingPlan
from ..types import HOST

PREFIX = "tables"  # the beginning of the names of the files
VALUE = ".ATTRIBUTES/VARIABLE_VALUE"  # the end of the key of every variable

_SPECIAL = frozenset("*?[\\")  # characters of a glob pattern
# The errors of TensorFlow's readers. Some turn a status into a bare OpError or an error of Python.
_FAILURES = (tf.errors.OpError, IndexError, RuntimeError, ValueError)
# The errors of RestoreV2 for a file that can be opened, but is too short or has a wrong checksum.
_DAMAGE = (tf.errors.DataLossError, tf.errors.NotFoundError, tf.errors.OutOfRangeError)

_LAYOUTS = "tables.json"
_DEFAULT: Layout = {"kind": "device"}  # of a table in a checkpoint that is older than layouts
_RULES = frozenset(["mod", "block"])
_SHAPES = (  # the shapes in JSON of all kinds of layout
    {"kind": frozenset(["device", "dynamic"])},
    {"kind": frozenset(["file"]), "path": str},
    {"kind": frozenset(["sharded"]), "shards": range(1, 2**31), "rule": _RULES},
)


def write_layouts(folder: Path, tables: Mapping[str, Table]) -> None:
    """Write the layouts of all tables of a checkpoint to its `tables.json`, which is replaced.

    Raises:
        RunError: The file cannot be written.
    """
    layouts = {name: table.layout() for name, table in tables.items()}
    with replacing(folder / _LAYOUTS) as temporary:
        temporary.write_text(json.dumps(layouts))


def update_layouts(folder: Path, tables: Mapping[str, Table]) -> None:
    """Write the layouts again if they differ from the stored ones only by the path of a file.

    That is so if --table_file was moved since the checkpoint was written. Otherwise do nothing.

    Args:
        folder: The folder of a checkpoint of these tables.

    Raises:
        DamagedError: The stored layouts are damaged.
        RunError: The layouts cannot be read or written.
    """
    before = {name: read_layout(folder, name) for name in tables}
    now = {name: table.layout() for name, table in tables.items()}
    if before != now and all(is_same_layout(before[name], now[name]) for name in tables):
        write_layouts(folder, tables)


def read_layouts(folder: Path) -> dict[str, Layout]:
    """Return the layouts of the tables in a checkpoint, by name; empty without `tables.json`.

    Raises:
        DamagedError: The layouts are damaged.
        RunError: The layouts cannot be read.
    """
    return read_json(folder / _LAYOUTS, {str: _SHAPES}, optional=True) or {}


def read_layout(folder: Path, name: str) -> Layout:
    """Return the layout of one table in a checkpoint; of a table on the device if none is stored.

    Raises:
        DamagedError: The layouts are damaged.
        RunError: The layouts cannot be read.
    """
    return read_layouts(folder).get(name, _DEFAULT)


def is_same_layout(first: Layout, second: Layout) -> bool:
    """Return whether two layouts are the same; the path of a file is not compared.

    Args:
        first: A layout.
        second: Another layout.
    """
    return {**first, "path": None} == {**second, "path": None}


def read_rows(folder: Path, name: str, slot: str = "") -> np.ndarray:
    """Read all rows of a table in a checkpoint, or of one of its slots.

    Args:
        name: The name of the table, which has rows by id.
        slot: The name of the slot; by default the rows of the table itself.

    Returns:
        Rows (V, D), float32, possibly read-only; in a temporary file where memory is short.

    Raises:
        DamagedError: The checkpoint is damaged.
        RunError: The checkpoint cannot be read, or has no such rows by id.
    """
    layout = _layout_by_id(folder, name)
    if layout["kind"] == "file":
        section = f"{name}.{slot}" if slot else name
        return file.read_rows(Path(layout["path"]), folder / name, section)
    bundle, keys = _open_variables(folder, name, slot, layout)
    rows, columns = sum(bundle.shapes[key][0] for key in keys), bundle.shapes[keys[0]][1]
    if len(keys) == 1 and arrays.fits_memory((rows, columns)):
        # TensorFlow reads the whole variable for each part of it. `numpy()` would copy the rows.
        return np.asarray(memoryview(tf.cast(bundle.rows(keys[0], 0, rows), tf.float32)))
    plan = ShardingPlan(rows, len(keys), layout.get("rule", "block"))
    rows_VD = arrays.make_buffer((rows, columns), folder.parent)
    for shard, key in enumerate(keys):
        for part in row_slices(plan.size(shard), columns):
            ids_N = plan.ids(shard, np.arange(part.start, part.stop))
            rows_VD[ids_N] = tf.cast(bundle.rows(key, part.start, len(ids_N)), tf.float32)
    return rows_VD


def count_rows(folder: Path, name: str) -> int:
    """Return the number of rows of a table in a checkpoint, without reading the rows.

    Args:
        name: The name of the table, which has rows by id.

    Raises:
        DamagedError: The checkpoint is damaged.
        RunError: The checkpoint cannot be read, or has no such rows by id.
    """
    layout = _layout_by_id(folder, name)
    if layout["kind"] == "file":
        return file.count_rows(Path(layout["path"]), name)
    bundle, keys = _open_variables(folder, name, "", layout)
    return sum(bundle.shapes[key][0] for key in keys)


def _layout_by_id(folder: Path, name: str) -> Layout:
    """Return the layout of a table in a checkpoint; raise RunError if its rows are by key."""
    layout = read_layout(folder, name)
    if layout["kind"] == "dynamic":
        raise RunError(
            f"{folder} holds table {name!r} of --table=dynamic, whose rows are by key and not "
            "by id; go on with that, or train in a new workdir"
        )
    return layout


def _open_variables(folder: Path, name: str, slot: str, layout: Layout) -> tuple[Bundle, list[str]]:
    """Return the variables of a checkpoint, and the keys of those that hold the rows of a table.

    Raise RunError if the checkpoint lacks one of them.
    """
    bundle, shards, inner = Bundle(folder), [""], f"/slots/{slot}" if slot else ""
    if layout["kind"] == "sharded":
        shards = [f"/parts/{shard}" for shard in range(layout["shards"])]
    keys = [f"{name}{shard}{inner}/values/{VALUE}" for shard in shards]
    if not bundle.shapes.keys() >= set(keys):
        raise RunError(absence(folder, name, slot))
    return bundle, keys


def absence(folder: Path, name: str, slot: str) -> str:
    """Return the error message for a table or a slot that a checkpoint does not hold.

    Args:
        slot: The name of the slot, or "" for the table itself.
    """
    what = f"slot {slot!r} of table {name!r}" if slot else f"table {name!r}"
    return (
        f"{folder} holds no {what}; give the flags that it was made with, or train in a new workdir"
    )


def read_ids(folder: Path, name: str, slot: str = "") -> tuple[np.ndarray, np.ndarray]:
    """Read the rows of a table in a checkpoint, and the ids that have these rows.

    Args:
        slot: The name of a slot, whose rows are read instead; not for a dynamic table.

    Returns:
        Ids (N,), rising, and rows (N, D), float32. A dynamic table gives the ids that it has stored
        as keys, any other table the ids 0 to V - 1.

    Raises:
        DamagedError: The checkpoint is damaged.
        RunError: The checkpoint cannot be read, or it is of a dynamic table whose keys are not ids.
    """
    if not _is_by_key(folder, name):
        rows_VD = read_rows(folder, name, slot)
        return np.arange(len(rows_VD)), rows_VD
    ids_N, rows_N, _ = read_keys(folder / name / KEYS)
    order_N = np.argsort(ids_N)
    return ids_N[order_N], row_store.read_rows(folder / name)[rows_N[order_N]]


def convert(folder: Path, name: str, table: Table) -> None:
    """Assign the rows of a stored table that has another layout to a table and its slots.

    The keys of a stored dynamic table are taken as ids; its slots cannot be converted. An id
    without a stored row keeps its initial row.

    Raises:
        DamagedError: The checkpoint is damaged.
        RunError: The shapes differ, the stored rows have no ids, the table is dynamic, the stored
            table is dynamic and the table has slots, or the checkpoint cannot be read.
    """
    if table.layout()["kind"] == "dynamic":
        raise RunError(
            f"{folder} holds table {name!r} by id, and --table=dynamic has rows by key; go on with "
            "the --table that it was made with, or train in a new workdir"
        )
    is_by_key = _is_by_key(folder, name)
    if is_by_key and table.slots:
        raise RunError(
            f"{folder / name} holds the rows of --table=dynamic, which training can only go on "
            "with as that; go on with it, or train in a new workdir"
        )
    for slot, target in {"": table, **table.slots}.items():
        ids_N, rows_ND = read_ids(folder, name, slot)
        if not is_by_key and rows_ND.shape != (target.rows, target.columns):
            raise RunError(
                f"{folder} holds table {name!r} with shape {rows_ND.shape}, where "
                f"{(target.rows, target.columns)} is asked for; give the flags and the vocabulary "
                "that it was made with, or train in a new workdir"
            )
        for part in row_slices(*rows_ND.shape):
            target.assign(tf.constant(ids_N[part]), tf.constant(rows_ND[part]))


def _is_by_key(folder: Path, name: str) -> bool:
    """Return whether a stored table is dynamic and has its own keys, which are ids."""
    return read_layout(folder, name)["kind"] == "dynamic" and (folder / name / KEYS).is_dir()


class Bundle:
    """The variables in the folder of a checkpoint.

    The constructor reads the index; each method reads the values that it returns or assigns. All of
    them raise DamagedError if a file is missing or damaged, and RunError if it cannot be read for
    another reason. An error of Python is raised as it is where all files are good.

    Attributes:
        shapes: The shape of each variable, by key.
        dtypes: The dtype of each variable, by key.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        with self._prefix() as prefix:
            reader = tf.train.load_checkpoint(prefix)
            self.shapes: dict[str, list[int]] = reader.get_variable_to_shape_map()
            self.dtypes: dict[str, tf.DType] = reader.get_variable_to_dtype_map()

    def rows(self, key: str, first: int, count: int) -> tf.Tensor:
        """Read consecutive rows of a variable of shape (V, D), and no others.

        Args:
            first: The first row.
            count: The number of rows.

        Returns:
            Rows (count, D), in the dtype of the variable.
        """
        rows, columns = self.shapes[key]
        # For a slice TensorFlow first reads the whole variable, then copies the slice.
        part = "" if count == rows else f"{rows} {columns} {first},{count}:-"
        with self._prefix() as prefix:
            return _read(prefix, key, self.dtypes[key], part)

    def restore(self, variables: tf.train.Checkpoint) -> None:
        """Assign the saved values to variables; keep the value of a variable that was not saved."""
        with self._prefix() as prefix:
            variables.read(prefix).expect_partial()

    @contextlib.contextmanager
    def _prefix(self) -> Iterator[str]:
        """Yield the path prefix of the files, and convert errors of TensorFlow in the block.

        First each file is opened once: TensorFlow's errors say less than the system's for a file
        that cannot be opened. After an error all variables are read once, to find damage.
        """
        first = self._folder / f"{PREFIX}.data-00000-of-00001"
        with reading(self._folder):
            files = list_folder(self._folder, f"{PREFIX}.data-") or [first]
            for path in (self._folder / f"{PREFIX}.index", *files):
                open(path, "rb").close()
            with _literal_prefix(self._folder) as prefix:
                try:
                    yield prefix
                except _FAILURES as error:
                    found = _find_failure(prefix)
                    told = found or error
                    if not isinstance(told, tf.errors.OpError):
                        raise
                    # Without the name of the operation in the graph.
                    lines = told.message.splitlines() or [""]
                    reason = lines[0].rpartition("}} ")[2][:200] or type(told).__name__
                    path = self._folder / PREFIX
                    if isinstance(found, _DAMAGE):
                        raise DamagedError(f"{path}: {reason}") from error
                    raise RunError(
                        f"cannot read {path}: {reason}; mend that and run this again"
                    ) from error


def _find_failure(prefix: str) -> tf.errors.OpError | None:
    """Read every variable, and return the first error, with its own status; None if all are good.

    RestoreV2 first reads the index, since `load_checkpoint` does not keep a status.
    """
    try:
        _read(prefix, "_CHECKPOINTABLE_OBJECT_GRAPH", tf.string)
        dtypes = tf.train.load_checkpoint(prefix).get_variable_to_dtype_map()
        for key, dtype in dtypes.items():
            _read(prefix, key, dtype)
    except tf.errors.OpError as error:
        return error
    return None


def _read(prefix: str, key: str, dtype: tf.DType, part: str = "") -> tf.Tensor:
    """Read a variable, or the part of it that a slice of RestoreV2 names, on the CPU."""
    with tf.device(HOST):
        (value,) = tf.raw_ops.RestoreV2(
            prefix=prefix, tensor_names=[key], shape_and_slices=[part], dtypes=[dtype]
        )
    return value


@contextlib.contextmanager
def _literal_prefix(folder: Path) -> Iterator[str]:
    """Yield a path prefix of the files that has no character of a glob pattern.

    RestoreV2 looks for the index by a glob pattern and then opens the same text. A path with
    brackets or a backslash does not match, whether or not it is escaped. So the folder is opened:
    during the `with` block it is /proc/self/fd/N, which only this process can read.
    """
    if not _SPECIAL.intersection(str(folder.absolute())):
        yield str(folder.absolute() / PREFIX)
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{PREFIX}"
    finally:
        os.close(descriptor)
