"""Rows by number, of a map that says which key has which row."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from ...errors import RunError
from ...system.checked_files import COUNT, damaged, read_json
from .. import arrays
from .. import initial as initial_values
from ..device import DeviceTable
from ..initial import Initial, Unwritten
from ..row_reads import parts
from .keys import KeyMap

_VALUES = "values"
_SHAPE = {
    "mark": arrays.MARK,
    "rows": range(2**31),
    "columns": range(1, 2**31),
    "dtype": frozenset(["float32", "float16", "bfloat16"]),
    "writes": COUNT,
}


class Slab(DeviceTable):
    """The rows of a key map by their numbers: a table (see `tables.base.Table`) of its own.

    On a CPU the system commits memory when a row is first written, so growing copies nothing; a GPU
    sets all of it aside. A row holds nothing until it is admitted.

    keys: who has which row. columns: D. initial: see `tables.initial`. options: see `DeviceTable`.
    """

    def __init__(self, keys: KeyMap, columns: int, initial: Initial, **options: Any):
        super().__init__(keys.capacity, columns, Unwritten(), **options)
        self.initial, self._keys = initial, keys
        for rows in self._numbers():
            self.admit(rows, keys.hashes_V[rows])

    def admit(self, rows: np.ndarray, hashes: np.ndarray) -> None:
        """Gives rows and their slots initial values, those of the hashes of the keys that have them
        from now on (see `KeyMap.hashes`)."""
        for part in parts(len(rows), self.columns):
            self.put(rows[part], self.initial_rows(tf.constant(hashes[part])))
        for slot in self.slots.values():
            slot.admit(rows, hashes)

    def initial_rows(self, hashes_U: tf.Tensor) -> tf.Tensor:
        """The initial rows of keys with these hashes, (U, D) float32."""
        return initial_values.rows(self.initial, hashes_U, (self.rows, self.columns))

    def bytes(self) -> int:
        """Bytes of the rows and slots that ever were in use."""
        own = self._keys.used * self.columns * self.values.dtype.size
        return own + sum(slot.bytes() for slot in self.slots.values())

    def is_finite(self) -> bool:
        """Whether every number of every row that ever was in use is finite."""
        found = (self.gather(rows) for rows in self._numbers())
        return all(bool(tf.reduce_all(tf.math.is_finite(part))) for part in found)

    def snapshot(self, folder: Path) -> None:
        """Writes the rows and slots that ever were in use, part by part. OSError if it cannot."""
        for name, slab in self.parts().items():
            slab._write(folder / name)

    def committed(self, folders: Sequence[Path]) -> None:
        """Nothing: a snapshot is whole in itself."""

    def revert(self, folder: Path) -> None:
        """Read what `snapshot` wrote; slots that are not there now are left out.

        Raises:
            DamagedError: A file is missing or damaged.
            RunError: It lacks a slot, or has other columns.
        """
        for name, slab in self.parts().items():
            slab._read(folder / name)

    def parts(self) -> dict[str, Slab]:
        """Itself, as `values`, and its slots by name."""
        return {_VALUES: self, **self.slots}

    def _numbers(self) -> Iterator[np.ndarray]:
        """The rows that ever were in use, a part at a time."""
        for part in parts(self._keys.used, self.columns):
            yield np.arange(part.start, part.stop)

    def _beside(self, columns: int, initial: Initial, **options: Any) -> Slab:
        return Slab(self._keys, columns, initial, **options)

    def _write(self, path: Path) -> None:
        dtype, used = self.values.dtype, self._keys.used
        found = (tf.cast(self.gather(rows), dtype).numpy() for rows in self._numbers())
        how = {"mark": arrays.write(path, found), "rows": used, "columns": self.columns}
        how |= {"dtype": dtype.name, "writes": int(self.writes) if self._is_stochastic else 0}
        _told(path).write_text(json.dumps(how))

    def _read(self, path: Path) -> None:
        if not _told(path).exists() and not path.exists():
            raise RunError(
                f"{path.parent} holds no {path.name!r}; give the --optimizer that it was made "
                "with, or train in a new workdir"
            )
        how = _manifest(path)
        if how["columns"] != self.columns:
            raise RunError(
                f"{path} has {how['columns']} columns, where {self.columns} are asked for; give "
                "the flags that it was made with, or train in a new workdir"
            )
        if how["rows"] > self.rows:
            raise damaged(_told(path), f"it has {how['rows']} rows, of {self.rows} at most")
        start = 0
        for rows_ND in _saved(path, how):
            self.put(np.arange(start, start + len(rows_ND)), rows_ND)
            start += len(rows_ND)
        if self._is_stochastic:
            self.writes.assign(how["writes"])


def read_rows(folder: Path) -> np.ndarray:
    """Return the rows of a slab's snapshot by number, (N, D) float32.

    Raises:
        DamagedError: A file is missing or damaged.
    """
    how = _manifest(folder / _VALUES)
    rows_ND = np.empty((how["rows"], how["columns"]), np.float32)
    start = 0
    for part_ND in _saved(folder / _VALUES, how):
        rows_ND[start : start + len(part_ND)] = part_ND
        start += len(part_ND)
    return rows_ND


def _told(path: Path) -> Path:
    """The file that tells what is in another."""
    return path.with_suffix(".json")


def _manifest(path: Path) -> dict[str, Any]:
    """Read the file that tells what is in another, and check that it fits itself."""
    how = read_json(_told(path), _SHAPE)
    if how["mark"][0] != how["rows"] * how["columns"] * tf.as_dtype(how["dtype"]).size:
        raise damaged(_told(path), "its rows and columns are not those of its bytes")
    return how


def _saved(path: Path, how: Mapping[str, Any]) -> Iterator[np.ndarray]:
    """Rows that were written, part by part, float32."""
    stored = tf.as_dtype(how["dtype"])
    for data in arrays.read(path, how["mark"], how["columns"] * stored.size):
        rows = np.frombuffer(data, stored.as_numpy_dtype).reshape(-1, how["columns"])
        yield rows.astype(np.float32)
