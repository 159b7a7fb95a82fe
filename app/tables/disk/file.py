"""A table in a file that is mapped into memory, for tables larger than the memory."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from ...errors import RunError
from ...system.checked_files import COUNT, read_json
from ...system.python_functions import call_python
from .. import arrays, row_files
from ..base import Ids, Layout, LocatedIds, Slot
from ..id_checks import check_ids
from ..initial import Initial
from ..rounding import RoundedTable
from .sections import Header, Section, read_header
from .table_file import TableFile, generation_of, list_journals, list_journals_to_undo, records

_WRITES = "writes.json"  # the counts of writes in a snapshot
_CPU = "CPU:0"  # a file is mapped into host memory, whatever device the steps run on


class FileTable(RoundedTable):
    """A `tables.base.Table` whose rows and slots are stored in a file.

    `assign` raises RunError if the disk is full, and `gather` if the file was cut short; inside a
    tf.function the error is a tf.errors.OpError (see `system.python_functions`). Rows are read and
    written by Python, so XLA cannot compile a step.

    Args:
        file: The file, which may hold other tables, too.
        name: The name of this table in the file, unique there.
        initial: The initial values. Initial values without a method `rows` (see `tables.initial`)
            are made as a whole in memory.

    Raises:
        UsageError: The file to resume has no such table or slot.
        RunError: The disk is too small.
    """

    def __init__(
        self,
        file: TableFile,
        name: str,
        rows: int,
        columns: int,
        initial: Initial,
        dtype: tf.DType = tf.float32,
        slots: Mapping[str, Slot] | None = None,
        **options: Any,
    ):
        with tf.device(_CPU):
            super().__init__(rows, columns, dtype, **options)
        self.path, self.device = file.path, "/device:CPU:0"
        self._file, self._section = file, name
        self.commit = file.commit
        self._number = file.section(name, rows, columns, initial, dtype)
        self.add_slots(slots or {})

    def locate(self, ids_U: Ids) -> LocatedIds:
        """Check ids and return them; see `Table.locate`. `gather` and `assign` check ids, too.

        Raises:
            tf.errors.InvalidArgumentError: An id is out of range.
        """
        if isinstance(ids_U, LocatedIds):
            return ids_U
        with tf.device(_CPU):
            return LocatedIds(ids_U, check_ids(ids_U, self.rows, self._section))

    def gather(self, ids_U: Ids) -> tf.Tensor:
        """Return the rows of the given ids; see `Table.gather`."""
        ids_U = self.locate(ids_U)
        rows_UD = self._call(self._file.read, ids_U, result=self.dtype)
        return tf.cast(tf.ensure_shape(rows_UD, (ids_U.rows.shape[0], self.columns)), tf.float32)

    def assign_exact(self, ids_U: Ids, rows_UD: tf.Tensor) -> None:
        """Replace rows in the file, without a random draw; see `RoundedTable.assign_exact`.

        The file keeps their old content in its journal (see `TableFile.write`).
        """
        self._call(self._file.write, ids_U, tf.cast(rows_UD, self.dtype))

    def is_finite(self) -> bool:
        """Return whether every number of every row is finite; slots are not read."""
        return all(np.isfinite(rows_ND).all() for rows_ND in self.parts())

    def parts(self) -> Iterator[np.ndarray]:
        """Return an iterator over all rows in order, by the parts of `arrays.row_slices`.

        This is several times as fast as `gather` if the system has not cached the file.

        Returns:
            Parts (any number, D) in the dtype of the table.

        Raises:
            RunError: The file was replaced or cut short.
        """
        return self._file.checked_section(self._number).parts(self.path)

    def mapped(self) -> np.ndarray:
        """Return all rows, (V, D), mapped from the file into memory, to be read in order.

        Raises:
            RunError: The file was replaced or cut short.
        """
        section = self._file.checked_section(self._number)
        return section.numbers(section.mapped(self.path))

    def layout(self) -> Layout:
        """Return how a checkpoint holds this table: by the absolute path of its file."""
        return {"kind": "file", "path": str(self.path.absolute())}

    def snapshot(self, folder: Path) -> None:
        """Keep the rows of all tables of the file as they are; see `Checkpointable.snapshot`."""
        self._file.snapshot(folder)
        counts = {name: int(writes) for name, writes in self._counts().items()}
        (folder / _WRITES).write_text(json.dumps(counts))

    def restore(self, folder: Path) -> None:
        """Bring the file back to a snapshot; see `TableFile.restore`."""
        self._file.restore(folder)
        counts = read_writes(folder)
        for name, writes in self._counts().items():
            writes.assign(counts.get(name, 0))

    def _counts(self) -> dict[str, tf.Variable]:
        """Return the counts of writes of this table and its slots, if they round stochastically."""
        tables = {row_files.VALUES: self, **self.slots}
        return {name: table.writes for name, table in tables.items() if table.is_stochastic}

    def _make_slot(self, name: str, **options: Any) -> FileTable:
        """Return a table for a slot in the same file, whose section is `<table>.<name>`."""
        return FileTable(self._file, f"{self._section}.{name}", self.rows, **options)

    def _call(
        self, method: Callable, ids_U: Ids, *rows_UD: tf.Tensor, result: tf.DType | None = None
    ) -> tf.Tensor | None:
        """Check ids, and call a method of the file: at once in eager mode, else as a graph runs.

        The method is given the number of the section, the ids and the rows. In eager mode its
        result is returned as it is, in a graph as a tensor of dtype `result`.
        """
        function = functools.partial(method, self._number)
        with tf.device(_CPU):
            inputs = [self.locate(ids_U).rows, *rows_UD]
            if tf.executing_eagerly():
                return function(*(np.asarray(tensor) for tensor in inputs))
            return call_python(function, inputs, result)


def read_writes(folder: Path) -> dict[str, int]:
    """Return the counts of writes in a snapshot, as `FileTable._counts` names them.

    Raises:
        DamagedError: Their file is damaged.
    """
    return read_json(folder / _WRITES, {str: COUNT}, optional=True) or {}


def count_rows(path: Path, name: str) -> int:
    """Return the number of rows of a table in a file.

    Raises:
        RunError: The file is missing, is truncated or lacks the table.
    """
    return _find_section(path, name)[1].rows


def _find_section(path: Path, name: str) -> tuple[Header, Section]:
    """Return the header of a file and the section of a table; raise RunError without one."""
    try:
        header = read_header(path)
    except ValueError as error:
        raise RunError(f"{path} {error}; it holds the rows of the workdir") from error
    section = header.find(name)
    if section is None:
        raise RunError(f"{path} does not hold {name!r}; give the flags that it was made with")
    return header, section


def read_rows(path: Path, folder: Path, name: str) -> np.ndarray:
    """Return the rows of a table in a file at the moment of a snapshot.

    The file does not change, and the result is right even while the run that owns it is training.

    Returns:
        Rows (V, D), float32, in memory or in a temporary file (see `arrays.make_buffer`).

    Raises:
        DamagedError: The snapshot or a journal is damaged or missing.
        RunError: The file is missing, is truncated or lacks the table; the snapshot is of another
            file; or the run that owns the file has removed a journal meanwhile.
    """
    header, section = _find_section(path, name)
    generation = generation_of(folder, header)
    before = list_journals_to_undo(path, generation)
    rows_VD = arrays.make_buffer((section.rows, section.columns), path.parent)
    start = 0
    for part_UD in section.parts(path):
        rows_VD[start : start + len(part_UD)] = part_UD
        start += len(part_UD)
    # A row is appended to the journal before it is overwritten, so the journals have every row that
    # was overwritten since the snapshot, also while this function read the file.
    with contextlib.suppress(FileNotFoundError):
        for journal in list_journals(path, generation).values():
            for number, ids_U, rows_U, _ in records(journal, header.sections):
                if header.sections[number] == section:
                    rows_VD[ids_U] = section.numbers(rows_U)
        if before.keys() <= list_journals(path, generation).keys():
            return rows_VD
    raise RunError(
        f"the run that trains the rows in {path} no longer keeps the checkpoint {folder}; "
        "run this again"
    )
