"""The rows of a table in a checkpoint, read without making the table.

Each table has a folder there (see `tables.base.Checkpointable`), and the file `tables.json` has the
layout of each. TensorFlow is imported only for the rows of a dynamic table, of a file, and of an
earlier version, which let TensorFlow save all tables that are variables.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import RunError
from ..system.checked_files import damaged, list_folder, read_json, reading
from ..tables import row_files

if TYPE_CHECKING:
    from ..tables.base import Layout

LAYOUTS = "tables.json"
EARLIER = "tables.index"  # the file that TensorFlow wrote for earlier versions
_SPECIAL = frozenset("*?[\\")  # characters of a glob pattern
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
    if is_earlier(folder, name):
        parts = [read_earlier(folder, key) for key in _earlier_keys(name, slot, layout)]
        if any(part is None for part in parts):
            raise RunError(absence(folder, name, slot))
        if len(parts) == 1:
            return parts[0].astype(np.float32, copy=False)[: most or None]
        rows_VD = np.empty((sum(map(len, parts)), parts[0].shape[1]), np.float32)
        for shard, part_ND in enumerate(parts):
            rows_VD[shard :: len(parts)] = part_ND
        return rows_VD[: most or None]
    return row_files.read(_files(folder, name, slot, layout), folder.parent, most)


def count_rows(folder: Path, name: str) -> int:
    """Return the number of rows of a table in a checkpoint.

    The rows are not read, unless an earlier version saved them.

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
    if is_earlier(folder, name):
        return len(read_rows(folder, name))
    return sum(row_files.read_manifest(p)["rows"] for p in _files(folder, name, "", layout))


def _layout_by_id(folder: Path, name: str) -> Layout:
    """Return the layout of a table in a checkpoint; raise RunError if its rows are by key."""
    layout = read_layout(folder, name)
    if layout["kind"] == "dynamic":
        raise RunError(
            f"{folder} holds table {name!r} of --table=dynamic, whose rows are by key and not "
            "by id; go on with that, or train in a new workdir"
        )
    return layout


def _files(folder: Path, name: str, slot: str, layout: Layout) -> list[Path]:
    """Return the files of the rows of a table; raise RunError if the checkpoint lacks one."""
    shards = [str(shard) for shard in range(layout["shards"])] if "shards" in layout else [""]
    files = [folder / name / shard / (slot or row_files.VALUES) for shard in shards]
    if not all(map(row_files.exists, files)):
        raise RunError(absence(folder, name, slot))
    return files


def is_earlier(folder: Path, name: str) -> bool:
    """Return whether TensorFlow saved the rows of a table, for an earlier version."""
    return (folder / EARLIER).exists() and not (folder / name).is_dir()


def read_earlier(folder: Path, key: str) -> np.ndarray | None:
    """Return a variable that TensorFlow saved for an earlier version; None if there is none.

    Raises:
        DamagedError: It is damaged, or a file of it is missing.
        RunError: It cannot be read.
    """
    import tensorflow as tf

    prefix = EARLIER.removesuffix("index")
    with reading(folder):  # TensorFlow says less of a file that cannot be opened
        for path in list_folder(folder, prefix):
            open(path, "rb").close()
        place, descriptor = folder, os.open(folder, os.O_RDONLY)
    try:
        if _SPECIAL.intersection(str(folder)):  # TensorFlow takes the path for a glob pattern
            place = Path(f"/proc/self/fd/{descriptor}")
        reader = tf.train.load_checkpoint(str(place / prefix.removesuffix(".")))
        key = f"{key}/.ATTRIBUTES/VARIABLE_VALUE"
        return reader.get_tensor(key) if reader.has_tensor(key) else None
    # TensorFlow turns some failures into errors of Python.
    except (tf.errors.OpError, IndexError, RuntimeError, ValueError) as error:
        raise damaged(folder / EARLIER, str(error).partition("\n")[0][:200]) from error
    finally:
        os.close(descriptor)


def count_writes(folder: Path, name: str, slot: str) -> int:
    """Return the writes of a table or a slot that were counted for stochastic rounding, or 0.

    Of several shards, which count the same, it is that of the first.
    """
    layout = read_layout(folder, name)
    if (folder / EARLIER).exists():  # also beside a table in a file
        key = _earlier_keys(name, slot, layout)[0]
        writes = read_earlier(folder, f"{key.removesuffix('values')}writes")
        return 0 if writes is None else int(writes)
    if layout["kind"] == "file":
        from ..tables.disk import file  # it imports TensorFlow

        return file.read_writes(folder / name).get(slot or row_files.VALUES, 0)
    return int(row_files.read_manifest(_files(folder, name, slot, layout)[0])["writes"])


def _earlier_keys(name: str, slot: str, layout: Layout) -> list[str]:
    """Return the keys of the variables that held the rows of a table, or of its shards."""
    shards = [f"/parts/{n}" for n in range(layout["shards"])] if "shards" in layout else [""]
    return [f"{name}{shard}{f'/slots/{slot}' if slot else ''}/values" for shard in shards]


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
    from ..tables.dynamic import keys  # it imports TensorFlow

    ids_N, rows_N, _ = keys.read_keys(folder / name / _KEYS)
    order_N = np.argsort(ids_N)
    rows_ND = row_files.read([folder / name / row_files.VALUES], folder.parent)
    return ids_N[order_N], rows_ND[rows_N[order_N]]


def is_by_key(folder: Path, name: str) -> bool:
    """Return whether a stored table is dynamic and has its own keys, which are ids."""
    return read_layout(folder, name)["kind"] == "dynamic" and (folder / name / _KEYS).is_dir()
