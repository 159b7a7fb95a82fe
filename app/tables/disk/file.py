"""Rows in a file that is mapped into memory, for tables larger than the memory."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from ...errors import RunError
from .. import arrays
from ..device import DeviceTable
from ..id_checks import checked
from ..initial import Constant, Initial
from ..rounding import stochastic
from .journal import journals, needed, records
from .sections import read_header, unreadable
from .table_file import TableFile, generation_of

_CPU = "CPU:0"  # where a file is mapped, whatever the steps run on


class FileTable(tf.Module):
    """A table (see `tables.base.Table`) whose rows, and those of its slots, are in a file.

    file: where they are or will be. name: theirs in the file, unique. rows: V. columns: D. initial:
    where possible one that has `rows` (see `tables.initial`): others are made whole in memory.
    dtype, rounding, slot_dtype, seed: as of `tables.device.DeviceTable`.

    UsageError and RunError as `TableFile.section` says; `add` and `assign` raise RunError if the
    disk is full, as a tf.errors.OpError within a tf.function.
    """

    def __init__(
        self,
        file: TableFile,
        name: str,
        rows: int,
        columns: int,
        initial: Initial,
        dtype: tf.DType = tf.float32,
        rounding: str = "nearest",
        slot_dtype: tf.DType = tf.float32,
        seed: int = 0,
    ):
        super().__init__()
        self.rows, self.columns, self.path = rows, columns, file.path
        self.device = "/device:CPU:0"
        self.slots: dict[str, FileTable] = {}
        self._file, self._section = file, name
        self._number = file.section(name, rows, columns, initial, dtype)
        self.dtype, self._slot_dtype = dtype, slot_dtype
        self._rounding, self._seed = rounding, seed
        self._is_stochastic = rounding == "stochastic" and dtype != tf.float32
        if self._is_stochastic:
            with tf.device(_CPU):
                self.writes = tf.Variable(tf.zeros([], tf.int64), trainable=False, name="writes")

    def gather(self, ids_U: tf.Tensor) -> tf.Tensor:
        """The rows of the ids, (U, D) float32. InvalidArgumentError for one out of range."""

        def read(ids_U: np.ndarray) -> np.ndarray:
            return self._file.read(self._number, ids_U)

        rows_UD = self._call(read, ids_U, result=self.dtype)
        return tf.cast(tf.ensure_shape(rows_UD, (ids_U.shape[0], self.columns)), tf.float32)

    def add(self, ids_U: tf.Tensor, delta_UD: tf.Tensor) -> None:
        """Adds to the rows of unique ids, in float32; see `assign`.

        Where rounding is stochastic, of writers that race one wins.
        """

        def write(ids_U: np.ndarray, delta_UD: np.ndarray) -> None:
            def change() -> np.ndarray:
                return self._file.read(self._number, ids_U).astype(np.float32) + delta_UD

            self._file.write(self._number, ids_U, change)

        if self._is_stochastic:
            self.assign(ids_U, self.gather(ids_U) + delta_UD)
        else:
            self._call(write, ids_U, delta_UD)

    def assign(self, ids_U: tf.Tensor, rows_UD: tf.Tensor) -> None:
        """Replaces the rows of unique ids, rounded as the table was asked to.

        InvalidArgumentError for an id out of range.
        """
        if self._is_stochastic:
            seed = tf.stack([tf.constant(self._seed, tf.int64), self.writes.assign_add(1)])
            rows_UD = stochastic(rows_UD, self.dtype, seed)
        self.put(ids_U, rows_UD)

    def put(self, ids_U: tf.Tensor, rows_UD: tf.Tensor) -> None:
        """As `assign`, of rows that the storage can hold as they are: nothing is drawn."""

        def write(ids_U: np.ndarray, rows_UD: np.ndarray) -> None:
            self._file.write(self._number, ids_U, lambda: rows_UD)

        self._call(write, ids_U, tf.cast(rows_UD, self.dtype))

    def slot(self, name: str, columns: int, initial: float) -> FileTable:
        """A table of the same rows in the same file; see `tables.base.Table.slot`."""
        if name not in self.slots:
            with tf.init_scope():
                self.slots[name] = FileTable(
                    self._file,
                    f"{self._section}.{name}",
                    self.rows,
                    columns,
                    Constant(initial),
                    self._slot_dtype if columns > 1 else tf.float32,
                    self._rounding,
                    seed=self._seed ^ zlib.crc32(name.encode()),
                )
        return self.slots[name]

    def like(self, rows: int) -> DeviceTable:
        """See `DeviceTable.like`."""
        found = DeviceTable(
            rows, self.columns, tf.zeros, self.dtype, self._rounding, seed=self._seed
        )
        if self._is_stochastic:
            found.writes = self.writes
        return found

    def bytes(self) -> int:
        """Bytes of the file that the rows and the slots made so far take."""
        own = self.rows * self.columns * self.dtype.size
        return own + sum(slot.bytes() for slot in self.slots.values())

    def is_finite(self) -> bool:
        """Whether every number of every row is finite."""
        return all(np.isfinite(part_UD).all() for part_UD in self._file.parts(self._number))

    def snapshot(self, folder: Path) -> None:
        """See `TableFile.snapshot`, and so on; a call for one table of a file is one for all."""
        self._file.snapshot(folder)

    def committed(self, folders: Sequence[Path]) -> None:
        """See `TableFile.committed`."""
        self._file.committed(folders)

    def revert(self, folder: Path) -> None:
        """See `TableFile.revert`."""
        self._file.revert(folder)

    def _call(
        self,
        function: Callable,
        ids_U: tf.Tensor,
        *rows_UD: tf.Tensor,
        result: tf.DType | None = None,
    ) -> tf.Tensor | None:
        """Calls a function of arrays, now or whenever the graph runs."""
        with tf.device(_CPU):
            inputs = [checked(ids_U, self.rows, self._section), *rows_UD]
            if tf.executing_eagerly():
                return function(*(np.asarray(tensor) for tensor in inputs))
            return tf.numpy_function(function, inputs, [] if result is None else result)


def read_rows(path: Path, folder: Path, name: str) -> np.ndarray:
    """The rows of a section at the moment of a snapshot, (V, D) float32.

    Changes nothing; right also while the run that owns the file goes on.

    Raises:
        DamagedError: The snapshot or a journal is damaged or missing.
        RunError: The file is missing, truncated, lacks the section, or changed too much meanwhile.
    """
    try:
        header = read_header(path)
    except (OSError, ValueError) as error:
        raise RunError(f"{path} {unreadable(error)}; it holds the rows of the workdir") from error
    generation = generation_of(folder, header)
    section = header.find(name)
    if section is None:
        raise RunError(f"{path} does not hold {name!r}; give the flags that it was made with")
    before = needed(path, generation)
    rows_VD = arrays.room((section.rows, section.columns), path.parent)
    start = 0
    for part_UD in section.parts(path):
        rows_VD[start : start + len(part_UD)] = part_UD
        start += len(part_UD)
    # A row is journalled before it is overwritten, so one that was overwritten is found here.
    with contextlib.suppress(FileNotFoundError):
        for journal in journals(path, generation).values():
            for number, ids_U, rows_U, _ in records(journal):
                if header.sections[number] == section:
                    rows_VD[ids_U] = section.numbers(rows_U)
        if before.keys() <= journals(path, generation).keys():
            return rows_VD
    raise RunError(f"{path} went on to another checkpoint than {folder} meanwhile; run this again")
