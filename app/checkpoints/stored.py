"""The rows of a table in a checkpoint, read without making the table.

A checkpoint holds tables that are variables as TensorFlow saves them, and any other table in a
folder of its own (see `tables.base.Checkpointable`). The file `tables.json` has the layout of each
table. Rows by id are converted from any layout to any other, part by part, so that a run can
continue with another --table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf

from ..errors import RunError
from ..system.checked_files import read_json
from ..system.files import replacing
from ..tables import arrays
from ..tables.base import Layout, Table
from ..tables.disk import file
from ..tables.dynamic import key_files, row_store
from ..tables.dynamic.dynamic import KEYS
from ..tables.row_reads import row_slices
from ..tables.sharded import ShardingPlan
from .bundle import VALUE, Bundle

_LAYOUTS = "tables.json"
_DEFAULT: Layout = {"kind": "device"}  # of a table in a checkpoint that is older than layouts
_RULES = frozenset(["mod", "block"])
_SHAPES = (  # the shapes in JSON of all kinds of layout
    {"kind": frozenset(["device", "dynamic"])},
    {"kind": frozenset(["file"]), "path": str},
    {"kind": frozenset(["sharded"]), "shards": range(1, 2**31), "rule": _RULES},
)


def write_layouts(folder: Path, tables: Mapping[str, Table]) -> None:
    """Write the layouts of all tables of a checkpoint to its `tables.json`.

    Args:
        folder: The folder of the checkpoint.
        tables: The tables by name.
    """
    layouts = {name: table.layout() for name, table in tables.items()}
    with replacing(folder / _LAYOUTS) as temporary:
        temporary.write_text(json.dumps(layouts))


def update_layouts(folder: Path, tables: Mapping[str, Table]) -> None:
    """Write the layouts again if they differ from the stored ones only by the path of a file.

    That is so if --table_file was moved since the checkpoint was written.

    Args:
        folder: The folder of a checkpoint of these tables.
        tables: The tables by name.
    """
    before = {name: read_layout(folder, name) for name in tables}
    now = {name: table.layout() for name, table in tables.items()}
    if before != now and all(is_same_layout(before[name], now[name]) for name in tables):
        write_layouts(folder, tables)


def read_layouts(folder: Path) -> dict[str, Layout]:
    """Return the layouts of the tables in a checkpoint, by name; empty without `tables.json`.

    Args:
        folder: The folder of the checkpoint.

    Raises:
        DamagedError: The layouts are damaged.
        RunError: The layouts cannot be read.
    """
    return read_json(folder / _LAYOUTS, {str: _SHAPES}, optional=True) or {}


def read_layout(folder: Path, name: str) -> Layout:
    """Return the layout of one table in a checkpoint; of a table on the device if none is stored.

    Args:
        folder: The folder of the checkpoint.
        name: The name of the table.
    """
    return read_layouts(folder).get(name, _DEFAULT)


def is_same_layout(first: Layout, second: Layout) -> bool:
    """Return whether two layouts are the same; the path of a file is not compared.

    Args:
        first: A layout.
        second: Another layout.
    """
    return {**first, "path": None} == {**second, "path": None}


class StoredTable:
    """A table in a checkpoint, with rows by id.

    Every method raises DamagedError if the checkpoint is damaged, and RunError if it cannot be
    read.

    Args:
        folder: The folder of the checkpoint.
        name: The name of the table.

    Raises:
        RunError: The table has rows by key.
    """

    def __init__(self, folder: Path, name: str):
        self._folder, self._name = folder, name
        self._layout = read_layout(folder, name)
        self._kind = self._layout["kind"]
        if self._kind == "dynamic":
            raise RunError(
                f"{folder} holds table {name!r} of --table=dynamic, whose rows are by key and not "
                "by id; go on with that, or train in a new workdir"
            )
        if self._kind != "file":
            self._bundle = Bundle(folder)

    def read(self, slot: str = "") -> np.ndarray:
        """Read all rows of the table or of a slot.

        Args:
            slot: The name of the slot; by default the rows of the table itself.

        Returns:
            Rows (V, D), float32; in a temporary file where memory is short.

        Raises:
            RunError: The checkpoint has no such rows.
        """
        if self._kind == "file":
            path = Path(self._layout["path"])
            section = f"{self._name}.{slot}" if slot else self._name
            return file.read_rows(path, self._folder / self._name, section)
        rows_VD = arrays.make_buffer(self.shape(slot), self._folder.parent)
        for part in row_slices(*rows_VD.shape):
            rows_VD[part] = self._read_part(slot, part.start, part.stop)
        return rows_VD

    def shape(self, slot: str = "") -> tuple[int, int]:
        """Return the shape of a table that is not in a file, or of its slot.

        Args:
            slot: The name of the slot; by default the table itself.

        Returns:
            The number of rows and of columns, (V, D).

        Raises:
            RunError: The checkpoint has no such rows.
        """
        keys, shapes = self._keys(slot), self._bundle.shapes
        if not shapes.keys() >= set(keys):
            raise RunError(absence(self._folder, self._name, slot))
        return sum(shapes[key][0] for key in keys), shapes[keys[0]][1]

    def _read_part(self, slot: str, start: int, stop: int) -> np.ndarray:
        """Read the rows of the ids from start to stop - 1, float32, from all shards that have some.

        Consecutive ids are consecutive rows in every shard, too.
        """
        rows, columns = self.shape(slot)
        plan = ShardingPlan(rows, self._layout.get("shards", 1), self._layout.get("rule", "block"))
        shard_N, row_N = plan.locate(np.arange(start, stop))
        rows_ND = np.empty((stop - start, columns), np.float32)
        for shard, key in enumerate(self._keys(slot)):
            in_shard_N = shard_N == shard
            if not in_shard_N.any():
                continue
            rows_MD = self._bundle.rows(key, row_N[in_shard_N].min(), in_shard_N.sum())
            rows_ND[in_shard_N] = tf.cast(rows_MD, tf.float32)
        return rows_ND

    def _keys(self, slot: str) -> list[str]:
        """Return the keys of the variables that hold the rows, one for each shard."""
        inner = [f"slots/{slot}"] if slot else []
        if self._kind == "sharded":
            outer = [["parts", str(shard)] for shard in range(self._layout["shards"])]
        else:
            outer = [[]]
        return ["/".join([self._name, *part, *inner, "values", VALUE]) for part in outer]


def absence(folder: Path, name: str, slot: str) -> str:
    """Return the error message for a table or a slot that a checkpoint does not hold.

    Args:
        folder: The folder of the checkpoint.
        name: The name of the table.
        slot: The name of the slot, or "" for the table itself.
    """
    what = f"slot {slot!r} of table {name!r}" if slot else f"table {name!r}"
    return (
        f"{folder} holds no {what}; give the flags that it was made with, or train in a new workdir"
    )


def read_ids(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Read the rows of a table in a checkpoint, and the ids that have these rows.

    Args:
        folder: The folder of the checkpoint.
        name: The name of the table.

    Returns:
        Ids (N,), rising, and rows (N, D), float32.

    Raises:
        DamagedError: The checkpoint is damaged.
        RunError: The checkpoint cannot be read, or the rows have no ids.
    """
    if not _is_by_key(folder, name):
        rows_VD = StoredTable(folder, name).read()
        return np.arange(len(rows_VD)), rows_VD
    ids_N, rows_ND = _read_by_key(folder / name)
    order_N = np.argsort(ids_N)
    return ids_N[order_N], rows_ND[order_N]


def convert(folder: Path, name: str, table: Table) -> None:
    """Assign the rows of a stored table that has another layout to a table and its slots.

    The keys of a stored dynamic table are ids. An id without a stored row keeps its initial row.

    Args:
        folder: The folder of the checkpoint.
        name: The name of the table.
        table: The table to fill.

    Raises:
        RunError: The shapes differ, the rows have no ids, or the slots are by key.
    """
    if table.layout()["kind"] == "dynamic":
        raise RunError(
            f"{folder} holds table {name!r} by id, and --table=dynamic has rows by key; go on with "
            "the --table that it was made with, or train in a new workdir"
        )
    if _is_by_key(folder, name):
        _convert_by_key(folder / name, table)
        return
    stored = StoredTable(folder, name)
    for slot, target in {"": table, **table.slots}.items():
        rows_VD = stored.read(slot)
        if rows_VD.shape != (target.rows, target.columns):
            raise RunError(
                f"{folder} holds table {name!r} with shape {rows_VD.shape}, where "
                f"{(target.rows, target.columns)} is asked for; give the flags and the vocabulary "
                "that it was made with, or train in a new workdir"
            )
        for part in row_slices(*rows_VD.shape):
            target.assign(tf.range(part.start, part.stop, dtype=tf.int64), rows_VD[part])


def _is_by_key(folder: Path, name: str) -> bool:
    """Return whether a stored table is dynamic and has its own keys, which are ids."""
    return read_layout(folder, name)["kind"] == "dynamic" and (folder / name / KEYS).is_dir()


def _convert_by_key(folder: Path, table: Table) -> None:
    """Assign the rows of a stored dynamic table to a table; raise RunError if it has slots."""
    if table.slots:
        raise RunError(
            f"{folder} holds the rows of --table=dynamic, which training can only go on with as "
            "that; go on with it, or train in a new workdir"
        )
    ids_N, rows_ND = _read_by_key(folder)
    for part in row_slices(*rows_ND.shape):
        table.assign(tf.constant(ids_N[part]), tf.constant(rows_ND[part]))


def _read_by_key(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read the keys (N,) of a stored dynamic table, in the order of rows, and the rows (N, D)."""
    ids_N, rows_N, _ = key_files.read(folder / KEYS)
    return ids_N, row_store.read_rows(folder)[rows_N]
