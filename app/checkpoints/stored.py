"""The rows of a table in a checkpoint, whatever kind of table it was.

A checkpoint holds the tables that are variables as TensorFlow saves them, any other in a folder of
its own (see `tables.base.Kept`), and in `tables.json` how each was laid out. Rows by id are read
from one kind into another, a part at a time, so that a run may go on with another --table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from ..errors import RunError
from ..system.checked_files import read_json
from ..system.files import replacing
from ..tables import arrays
from ..tables.base import Kept, Table
from ..tables.disk import file
from ..tables.dynamic import key_files, slab
from ..tables.dynamic.dynamic import KEYS
from ..tables.row_reads import parts
from ..tables.sharded import Deal, ShardedTable
from .bundle import VALUE, Bundle

_LAYOUTS = "tables.json"
_DEVICE = {"kind": "device"}  # the layout where none was written

_RULES = frozenset(["mod", "block"])

Layout = dict[str, Any]
_SHAPES = (  # in JSON, of the layouts of all kinds
    {"kind": frozenset(["device", "dynamic"])},
    {"kind": frozenset(["file"]), "path": str},
    {"kind": frozenset(["sharded"]), "shards": range(1, 2**31), "rule": _RULES},
)


def layout(table: Table) -> Layout:
    """Where a checkpoint of a table has its rows."""
    if isinstance(table, ShardedTable):
        return {"kind": "sharded", "shards": table.deal.shards, "rule": table.deal.rule}
    if isinstance(table, file.FileTable):
        return {"kind": "file", "path": str(table.path.absolute())}
    return {"kind": "dynamic" if isinstance(table, Kept) else "device"}


def write_layouts(folder: Path, tables: Mapping[str, Table]) -> None:
    """Keeps the layouts of tables in the folder of a checkpoint."""
    found = {name: layout(table) for name, table in tables.items()}
    with replacing(folder / _LAYOUTS) as temporary:
        temporary.write_text(json.dumps(found))


def follow(folder: Path, tables: Mapping[str, Table]) -> None:
    """Notes in a checkpoint of these tables where their file has moved since."""
    before = {name: layout_in(folder, name) for name in tables}
    now = {name: layout(table) for name, table in tables.items()}
    if before != now and all(is_alike(before[name], now[name]) for name in tables):
        write_layouts(folder, tables)


def read_layouts(folder: Path) -> dict[str, Layout]:
    """Return the layouts of a checkpoint's tables; of one before there were kinds, none.

    Raises:
        DamagedError: They are damaged.
        RunError: They cannot be read.
    """
    return read_json(folder / _LAYOUTS, {str: _SHAPES}, optional=True) or {}


def is_alike(one: Layout, other: Layout) -> bool:
    """Whether a table can be read back as it was saved. A file may have moved since."""
    one, other = ({**layout, "path": None} for layout in (one, other))
    return one == other


def layout_in(folder: Path, name: str) -> Layout:
    """The layout of one of them."""
    return read_layouts(folder).get(name, _DEVICE)


class Stored:
    """The table of this name in a checkpoint.

    Whatever reads raises DamagedError if the checkpoint is damaged, and RunError if it cannot be
    read, or if the rows of the table have no ids.
    """

    def __init__(self, folder: Path, name: str):
        self._folder, self._name = folder, name
        self._layout = layout_in(folder, name)
        self._kind = self._layout["kind"]
        if self._kind == "dynamic":
            raise RunError(
                f"{folder} holds table {name!r} of --table=dynamic, whose rows are by key and not "
                "by id; go on with that, or train in a new workdir"
            )
        if self._kind != "file":
            self._bundle = Bundle(folder)

    def read(self, slot: str = "") -> np.ndarray:
        """Return the rows of the table, or of one of its slots, (V, D) float32."""
        if self._kind == "file":
            path = Path(self._layout["path"])
            section = f"{self._name}.{slot}" if slot else self._name
            return file.read_rows(path, self._folder / self._name, section)
        found_VD = arrays.room(self.shape(slot), self._folder.parent)
        for part in parts(*found_VD.shape):
            found_VD[part] = self._rows(slot, part.start, part.stop)
        return found_VD

    def shape(self, slot: str = "") -> tuple[int, int]:
        """Return how many rows there are, of how many columns, of a table that is not in a file."""
        keys_, shapes = self._keys(slot), self._bundle.shapes
        if not shapes.keys() >= set(keys_):
            raise RunError(lacking(self._folder, self._name, slot))
        return sum(shapes[key][0] for key in keys_), shapes[keys_[0]][1]

    def _rows(self, slot: str, low: int, high: int) -> np.ndarray:
        """The rows of a run of ids, whose rows are a run in every part."""
        shard_N, row_N = self._deal(slot).place(np.arange(low, high))
        found_ND = np.empty((high - low, self.shape(slot)[1]), np.float32)
        for shard, key in enumerate(self._keys(slot)):
            here_N = shard_N == shard
            if not here_N.any():
                continue
            part_MD = self._bundle.rows(key, row_N[here_N].min(), here_N.sum())
            found_ND[here_N] = tf.cast(part_MD, tf.float32)
        return found_ND

    def _deal(self, slot: str) -> Deal:
        rows, _ = self.shape(slot)
        return Deal(rows, self._layout.get("shards", 1), self._layout.get("rule", "block"))

    def _keys(self, slot: str) -> list[str]:
        """The keys of the variables that hold the rows."""
        inner = [f"slots/{slot}"] if slot else []
        if self._kind == "sharded":
            outer = [["parts", str(shard)] for shard in range(self._layout["shards"])]
        else:
            outer = [[]]
        return ["/".join([self._name, *part, *inner, "values", VALUE]) for part in outer]


def lacking(folder: Path, name: str, slot: str) -> str:
    """Return what to tell where a checkpoint has no such table, or no such slot of it."""
    what = f"slot {slot!r} of table {name!r}" if slot else f"table {name!r}"
    return (
        f"{folder} holds no {what}; give the flags that it was made with, or train in a new workdir"
    )


def read_ids(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The ids of a table that have rows, (N,), rising, and those, (N, D) float32.

    Raises as reading `Stored` does.
    """
    if not _is_by_key(folder, name):
        values_VD = Stored(folder, name).read()
        return np.arange(len(values_VD)), values_VD
    ids_N, values_ND = _by_key(folder / name)
    order_N = np.argsort(ids_N)
    return ids_N[order_N], values_ND[order_N]


def _is_by_key(folder: Path, name: str) -> bool:
    return layout_in(folder, name)["kind"] == "dynamic" and (folder / name / KEYS).is_dir()


def convert(folder: Path, name: str, table: Table) -> None:
    """Fills a table, and the slots that it has, from a table of a checkpoint of another kind.

    One with rows by key, which are ids, leaves the rows of other ids as they are at first. RunError
    where that has other shapes, or no ids, or where slots by key would be needed.
    """
    if layout(table)["kind"] == "dynamic":
        raise RunError(
            f"{folder} holds table {name!r} by id, and --table=dynamic has rows by key; go on with "
            "the --table that it was made with, or train in a new workdir"
        )
    if _is_by_key(folder, name):
        _from_keys(folder / name, table)
        return
    found = Stored(folder, name)
    for slot, part in {"": table, **table.slots}.items():
        rows_VD = found.read(slot)
        if rows_VD.shape != (part.rows, part.columns):
            raise RunError(
                f"{folder} holds table {name!r} with shape {rows_VD.shape}, where "
                f"{(part.rows, part.columns)} is asked for; give the flags and the vocabulary that "
                "it was made with, or train in a new workdir"
            )
        for run in parts(*rows_VD.shape):
            part.assign(tf.range(run.start, run.stop, dtype=tf.int64), rows_VD[run])


def _from_keys(folder: Path, table: Table) -> None:
    if table.slots:
        raise RunError(
            f"{folder} holds the rows of --table=dynamic, which training can only go on with as "
            "that; go on with it, or train in a new workdir"
        )
    ids_N, values_ND = _by_key(folder)
    for run in parts(*values_ND.shape):
        table.assign(tf.constant(ids_N[run]), tf.constant(values_ND[run]))


def _by_key(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    ids_N, rows_N, _ = key_files.read(folder / KEYS)
    return ids_N, slab.read_rows(folder)[rows_N]
