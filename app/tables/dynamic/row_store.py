"""The memory of a dynamic table: rows by the row numbers that a key map gives out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from ...errors import RunError
from ...system.checked_files import COUNT, damaged, read_json, reading
from .. import arrays
from ..arrays import row_slices
from ..base import Layout, Slot
from ..device import DeviceTable
from ..initial import Initial, Unwritten, initial_rows
from .keys import KeyMap

_VALUES = "values"
_MANIFEST_SHAPE = {
    "mark": arrays.CHECKSUM_SHAPE,
    "rows": range(2**31),
    "columns": range(1, 2**31),
    "dtype": frozenset(["float32", "float16", "bfloat16"]),
    "writes": COUNT,
}


class RowStore(DeviceTable):
    """The rows of a key map: a `tables.base.Table` whose ids are the map's row numbers.

    On a CPU the system commits memory when a row is first written, so a growing table copies
    nothing. A GPU allocates all of it at once. A row has no value before it is admitted.
    """

    def __init__(
        self,
        key_map: KeyMap,
        columns: int,
        initial: Initial,
        slots: Mapping[str, Slot] | None = None,
        **options: Any,
    ):
        super().__init__(key_map.capacity, columns, Unwritten(), **options)
        self.initial, self._key_map = initial, key_map
        for rows in self._used_rows():
            self.admit(rows, key_map.hashes_V[rows])
        self.add_slots(slots or {})

    def admit(self, rows: np.ndarray, hashes: np.ndarray) -> None:
        """Write the initial values of rows, and of their slots, for new keys.

        Args:
            hashes: The hashes of the keys that have these rows from now on, (N,) int64 (see
                `KeyMap.hashes`).
        """
        for part in row_slices(len(rows), self.columns):
            self.assign_exact(rows[part], self.initial_rows(tf.constant(hashes[part])))
        for slot in self.slots.values():
            slot.admit(rows, hashes)

    def initial_rows(self, hashes_U: tf.Tensor) -> tf.Tensor:
        """Return the initial rows of keys.

        Returns:
            Rows (U, D), float32.
        """
        return initial_rows(self.initial, hashes_U, (self.rows, self.columns))

    @property
    def used(self) -> int:
        """The number of rows that were ever in use; those from this number on have no values."""
        return self._key_map.used

    def bytes(self) -> int:
        """Return the bytes of all rows and slots that were ever in use."""
        own = self._key_map.used * self.columns * self.values.dtype.size
        return own + sum(slot.bytes() for slot in self.slots.values())

    def is_finite(self) -> bool:
        """Return whether every number of every row ever in use is finite; slots are not read."""
        parts = (self.gather(rows) for rows in self._used_rows())
        return all(bool(tf.reduce_all(tf.math.is_finite(part))) for part in parts)

    def layout(self) -> Layout:
        """Return how a checkpoint holds this table: in files of its own."""
        return {"kind": "dynamic"}

    def snapshot(self, folder: Path) -> None:
        """Write all rows and slots that were ever in use; see `Checkpointable.snapshot`."""
        for name, store in self.stores().items():
            store._write(folder / name)

    def commit(self, folders: Sequence[Path]) -> None:
        """Do nothing: a snapshot is complete in itself."""

    def restore(self, folder: Path) -> None:
        """Read the files that `snapshot` wrote; slots that this table does not have are left out.

        Raises:
            RunError: The snapshot lacks a slot, or has another number of columns.
        """
        for name, store in self.stores().items():
            store._read(folder / name)

    def stores(self) -> dict[str, RowStore]:
        """Return this store, under the name "values", and the stores of its slots by name."""
        return {_VALUES: self, **self.slots}

    def _used_rows(self) -> Iterator[np.ndarray]:
        """Return an iterator over the numbers of the rows that were ever in use, part by part."""
        parts = row_slices(self._key_map.used, self.columns)
        return (np.arange(part.start, part.stop) for part in parts)

    def _make_slot(self, name: str, **options: Any) -> RowStore:
        """Return a store for a slot, with the same key map and device; `name` is not used."""
        with tf.device(self.values.device):
            return RowStore(self._key_map, **options)

    def _write(self, path: Path) -> None:
        """Write the rows that were ever in use to a file, and their manifest to PATH.json."""
        dtype = self.values.dtype
        parts = (tf.cast(self.gather(rows), dtype).numpy() for rows in self._used_rows())
        manifest = {
            "mark": arrays.write(path, parts),
            "rows": self._key_map.used,
            "columns": self.columns,
            "dtype": dtype.name,
            "writes": int(self.writes) if self.is_stochastic else 0,
        }
        _manifest_path(path).write_text(json.dumps(manifest))

    def _read(self, path: Path) -> None:
        """Replace the rows and the count of writes by the content of a file; see `restore`."""
        if not _manifest_path(path).exists() and not path.exists():
            raise RunError(
                f"{path.parent} holds no {path.name!r}; give the --optimizer that it was made "
                "with, or train in a new workdir"
            )
        manifest = _read_manifest(path)
        if manifest["columns"] != self.columns:
            raise RunError(
                f"{path} has {manifest['columns']} columns, where {self.columns} are asked for; "
                "give the flags that it was made with, or train in a new workdir"
            )
        if manifest["rows"] > self.rows:
            reason = f"it has {manifest['rows']} rows, of {self.rows} at most"
            raise damaged(_manifest_path(path), reason)
        for start, rows_ND in _read_parts(path, manifest):
            self.assign_exact(np.arange(start, start + len(rows_ND)), rows_ND)
        if self.is_stochastic:
            self.writes.assign(manifest["writes"])


def read_rows(folder: Path) -> np.ndarray:
    """Return the rows in a snapshot of a store, also rows without a key; slots are left out.

    Returns:
        Rows (N, D) by row number, float32.
    """
    manifest = _read_manifest(folder / _VALUES)
    rows_ND = np.empty((manifest["rows"], manifest["columns"]), np.float32)
    for start, part_ND in _read_parts(folder / _VALUES, manifest):
        rows_ND[start : start + len(part_ND)] = part_ND
    return rows_ND


def _manifest_path(path: Path) -> Path:
    """Return the path of the manifest of a file of rows: its suffix is replaced by .json."""
    return path.with_suffix(".json")


def _read_manifest(path: Path) -> dict[str, Any]:
    """Read the manifest of a file of rows; raise DamagedError if it contradicts itself or the file.

    So memory that is allocated by the manifest is no more than that of the file.
    """
    manifest = read_json(_manifest_path(path), _MANIFEST_SHAPE)
    row_bytes = manifest["columns"] * tf.as_dtype(manifest["dtype"]).size
    if manifest["mark"][0] != manifest["rows"] * row_bytes:
        raise damaged(_manifest_path(path), "its rows and columns are not those of its bytes")
    with reading(path):
        size = path.stat().st_size
    if manifest["mark"][0] != size:
        raise damaged(path, f"{size} bytes, where {manifest['mark'][0]} were written")
    return manifest


def _read_parts(path: Path, manifest: Mapping[str, Any]) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the first row number of each part of a file, and its rows, (any number, D) float32."""
    dtype, columns, start = tf.as_dtype(manifest["dtype"]), manifest["columns"], 0
    for data in arrays.read(path, manifest["mark"], columns * dtype.size):
        rows = np.frombuffer(data, dtype.as_numpy_dtype).reshape(-1, columns)
        yield start, rows.astype(np.float32)
        start += len(rows)
