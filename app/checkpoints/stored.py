"""The rows of a table in a checkpoint, read without making the table.

A checkpoint holds tables that are variables as TensorFlow saves them, and any other table in a
folder of its own (see `tables.base.Checkpointable`). The file `tables.json` has the layout of each
table. Rows of variables are read without TensorFlow.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import RunError
from ..system.checked_files import read_json
from ..tables import arrays
from .variables_file import Variables

if TYPE_CHECKING:
    from ..tables.base import Layout

VALUE = ".ATTRIBUTES/VARIABLE_VALUE"  # the end of the key of every variable

LAYOUTS = "tables.json"
_KEYS = "keys"  # `tables.dynamic.dynamic.KEYS`, the folder of the keys of a dynamic table
_DEFAULT: Layout = {"kind": "device"}  # of a table in a checkpoint that is older than layouts
_SHAPES = (  # the shapes in JSON of all kinds of layout
    {"kind": frozenset(["device", "dynamic"])},
    {"kind": frozenset(["file"]), "path": str},
    {"kind": frozenset(["sharded"]), "shards": range(1, 2**31), "rule": frozenset(["mod"])},
)


def read_layouts(folder: Path) -> dict[str, Layout]:
    """Return the layouts of the tables in a checkpoint, by name; empty without `tables.json`.

    Raises:
        DamagedError: The layouts are damaged.
        RunError: The layouts cannot be read.
    """
    return read_json(folder / LAYOUTS, {str: _SHAPES}, optional=True) or {}


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
        second: Another layout.
    """
    return {**first, "path": None} == {**second, "path": None}


def read_rows(folder: Path, name: str, slot: str = "", most: int = 0) -> np.ndarray:
    """Read all rows of a table in a checkpoint, or of one of its slots.

    Args:
        name: The name of the table, which has rows by id.
        slot: The name of the slot; by default the rows of the table itself.
        most: Read only so many rows, the first ones; then no checksum is compared. 0 reads all.

    Returns:
        Rows (V, D), float32, possibly read-only; in a temporary file where memory is short.

    Raises:
        DamagedError: The checkpoint is damaged.
        RunError: The checkpoint cannot be read, or has no such rows by id.
    """
    layout = _layout_by_id(folder, name)
    if layout["kind"] == "file":
        from ..tables.disk import file  # it imports TensorFlow

        section = f"{name}.{slot}" if slot else name
        return file.read_rows(Path(layout["path"]), folder / name, section)[: most or None]
    variables, keys = _open_variables(folder, name, slot, layout)
    rows = sum(variables.shapes[key][0] for key in keys)
    wanted = min(rows, most or rows)
    rows_VD = arrays.make_buffer((wanted, variables.shapes[keys[0]][1]), folder.parent)
    for shard, key in enumerate(keys):
        for first, part_ND in variables.parts(key):
            ids_N = shard + (first + np.arange(len(part_ND))) * len(keys)
            count = np.searchsorted(ids_N, wanted)
            rows_VD[ids_N[:count]] = part_ND[:count]
            if count < len(ids_N):
                break
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
        from ..tables.disk import file  # it imports TensorFlow

        return file.count_rows(Path(layout["path"]), name)
    variables, keys = _open_variables(folder, name, "", layout)
    return sum(variables.shapes[key][0] for key in keys)


def _layout_by_id(folder: Path, name: str) -> Layout:
    """Return the layout of a table in a checkpoint; raise RunError if its rows are by key."""
    layout = read_layout(folder, name)
    if layout["kind"] == "dynamic":
        raise RunError(
            f"{folder} holds table {name!r} of --table=dynamic, whose rows are by key and not "
            "by id; go on with that, or train in a new workdir"
        )
    return layout


def _open_variables(
    folder: Path, name: str, slot: str, layout: Layout
) -> tuple[Variables, list[str]]:
    """Return the variables of a checkpoint, and the keys of those that hold the rows of a table.

    Raise RunError if the checkpoint lacks one of them.
    """
    variables, shards, inner = Variables(folder), [""], f"/slots/{slot}" if slot else ""
    if layout["kind"] == "sharded":
        shards = [f"/parts/{shard}" for shard in range(layout["shards"])]
    keys = [f"{name}{shard}{inner}/values/{VALUE}" for shard in shards]
    if not variables.shapes.keys() >= set(keys):
        raise RunError(absence(folder, name, slot))
    return variables, keys


def absence(folder: Path, name: str, slot: str) -> str:
    """Return the error message for a table or a slot that a checkpoint does not hold.

    Args:
        slot: The name of the slot, or "" for the table itself.
    """
    what = f"slot {slot!r} of table {name!r}" if slot else f"table {name!r}"
    return (
        f"{folder} holds no {what}; give the flags that it was made with, or train in a new workdir"
    )


def read_ids(
    folder: Path, name: str, slot: str = "", most: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Read the rows of a table in a checkpoint, and the ids that have these rows.

    Args:
        slot: The name of a slot, whose rows are read instead; not for a dynamic table.
        most: See `read_rows`; a dynamic table gives all rows.

    Returns:
        Ids (N,), rising, and rows (N, D), float32. A dynamic table gives the ids that it has stored
        as keys, any other table the ids 0 to V - 1.

    Raises:
        DamagedError: The checkpoint is damaged.
        RunError: The checkpoint cannot be read, or it is of a dynamic table whose keys are not ids.
    """
    if not is_by_key(folder, name):
        rows_VD = read_rows(folder, name, slot, most)
        return np.arange(len(rows_VD)), rows_VD
    from ..tables.dynamic import keys, row_store  # they import TensorFlow

    ids_N, rows_N, _ = keys.read_keys(folder / name / _KEYS)
    order_N = np.argsort(ids_N)
    return ids_N[order_N], row_store.read_rows(folder / name)[rows_N[order_N]]


def is_by_key(folder: Path, name: str) -> bool:
    """Return whether a stored table is dynamic and has its own keys, which are ids."""
    return read_layout(folder, name)["kind"] == "dynamic" and (folder / name / _KEYS).is_dir()
