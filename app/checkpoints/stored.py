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
from ..tables.dynamic import row_store
from ..tables.dynamic.dynamic import KEYS
from ..tables.dynamic.keys import read_keys
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
    for part in row_slices(rows, columns):
        shard_N, row_N = plan.locate(np.arange(part.start, part.stop))
        for shard, key in enumerate(keys):
            in_shard_N = shard_N == shard
            if in_shard_N.any():  # consecutive ids are consecutive rows in every shard, too
                rows_MD = bundle.rows(key, row_N[in_shard_N].min(), in_shard_N.sum())
                rows_VD[part][in_shard_N] = tf.cast(rows_MD, tf.float32)
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
    bundle, keys = Bundle(folder), _variable_keys(layout, name, slot)
    if not bundle.shapes.keys() >= set(keys):
        raise RunError(absence(folder, name, slot))
    return bundle, keys


def _variable_keys(layout: Layout, name: str, slot: str) -> list[str]:
    """Return the keys of the variables that hold the rows, one for each shard."""
    shards, inner = [""], f"/slots/{slot}" if slot else ""
    if layout["kind"] == "sharded":
        shards = [f"/parts/{shard}" for shard in range(layout["shards"])]
    return [f"{name}{shard}{inner}/values/{VALUE}" for shard in shards]


def absence(folder: Path, name: str, slot: str) -> str:
    """Return the error message for a table or a slot that a checkpoint does not hold.

    Args:
        slot: The name of the slot, or "" for the table itself.
    """
    what = f"slot {slot!r} of table {name!r}" if slot else f"table {name!r}"
    return (
        f"{folder} holds no {what}; give the flags that it was made with, or train in a new workdir"
    )


def read_ids(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Read the rows of a table in a checkpoint, and the ids that have these rows.

    Returns:
        Ids (N,), rising, and rows (N, D), float32. A dynamic table gives the ids that it has stored
        as keys, any other table the ids 0 to V - 1.

    Raises:
        DamagedError: The checkpoint is damaged.
        RunError: The checkpoint cannot be read, or it is of a dynamic table whose keys are not ids.
    """
    if not _is_by_key(folder, name):
        rows_VD = read_rows(folder, name)
        return np.arange(len(rows_VD)), rows_VD
    ids_N, rows_ND = _read_by_key(folder / name)
    order_N = np.argsort(ids_N)
    return ids_N[order_N], rows_ND[order_N]


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
    if _is_by_key(folder, name):
        _convert_by_key(folder / name, table)
        return
    for slot, target in {"": table, **table.slots}.items():
        rows_VD = read_rows(folder, name, slot)
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
    """Assign the rows in the folder of a stored dynamic table to a table, with its keys as ids.

    Raise RunError if the table to assign to has slots.
    """
    if table.slots:
        raise RunError(
            f"{folder} holds the rows of --table=dynamic, which training can only go on with as "
            "that; go on with it, or train in a new workdir"
        )
    ids_N, rows_ND = _read_by_key(folder)
    for part in row_slices(*rows_ND.shape):
        table.assign(tf.constant(ids_N[part]), tf.constant(rows_ND[part]))


def _read_by_key(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read the keys (N,) in the folder of a stored dynamic table, and the row of each, (N, D)."""
    ids_N, rows_N, _ = read_keys(folder / KEYS)
    return ids_N, row_store.read_rows(folder)[rows_N]
