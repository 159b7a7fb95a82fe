"""Save the tables of a run with their slots in checkpoints, and load them."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import tensorflow as tf
from absl import logging

from ..errors import DamagedError, RunError
from ..system.checked_files import list_folder, reading
from ..system.files import remove_folder, replacing, replacing_folder, system_error
from ..tables.arrays import row_slices
from ..tables.base import Checkpointable, Table
from ..tables.device import named_variables
from . import stored
from .checkpoint import (
    POSITION_FILE,
    Position,
    find_newest,
    list_checkpoints,
    newest_position,
    read_newest,
    read_position,
    write_position,
)
from .variables_file import PREFIX, Variables

# Some file systems have no way to reserve room, and a limit of the size of a file (ulimit -f) is
# about each of several files. A run needs no reservation.
_CANNOT_RESERVE = errno.EOPNOTSUPP, errno.EINVAL, errno.EFBIG
_SMALL_FILES = 2**20  # bytes of a checkpoint besides its variables, at most
_WRITES = "writes"  # the variable that counts the writes of a table with stochastic rounding
_SPECIAL = frozenset("*?[\\")  # characters of a glob pattern
# The errors of TensorFlow's readers. Some turn a status into a bare OpError or an error of Python.
_FAILURES = (tf.errors.OpError, IndexError, RuntimeError, ValueError)
# Those for a file that can be opened, but is too short or has a wrong checksum.
_DAMAGE = (tf.errors.DataLossError, tf.errors.NotFoundError, tf.errors.OutOfRangeError)


class Checkpoints:
    """The checkpoints of a run in one folder.

    TensorFlow saves the variables of tables. A `tables.base.Checkpointable` saves the rest itself.

    Args:
        folder: The folder of the checkpoints.
        tables: The tables of the run, and other state that is `Checkpointable`, by name.
        keep: How many of the newest checkpoints are kept.
    """

    def __init__(self, folder: Path, tables: Mapping[str, Table], keep: int = 1):
        self._folder, self._tables, self._keep = folder, tables, keep
        self._stateful = {n: part for n, part in tables.items() if isinstance(part, Checkpointable)}
        self._free_room: Callable[[], object] = lambda: None

    def newest(self) -> Position | None:
        """Return the position of the newest checkpoint, or None (see `newest_position`)."""
        return newest_position(self._folder)

    def reserve_room(self) -> None:
        """Check that the disk has room for the variables of the next checkpoint.

        If it is the first one, its room is reserved until `save`: a disk that becomes full
        meanwhile loses no step. The rows of dynamic tables, which are not made yet, are left out.

        Raises:
            RunError: The disk is too small.
        """
        tables = _saved_by_tensorflow(self._tables).values()
        variables = (variable for table in tables for _, variable in named_variables(table))
        needed = sum(item.shape.num_elements() * item.dtype.size for item in variables)
        needed += _SMALL_FILES
        place = next(path for path in self._folder.parents if path.exists())
        free = shutil.disk_usage(place).free
        try:
            if free < needed:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if not list_checkpoints(self._folder):
                room, name = tempfile.mkstemp(dir=place)
                self._free_room = weakref.finalize(self, os.close, room)
                os.unlink(name)  # without a name, a kill frees it
                os.posix_fallocate(room, 0, needed)
        except OSError as error:
            if error.errno in _CANNOT_RESERVE:
                return
            raise RunError(
                f"{self._folder}: a checkpoint takes {needed:,} bytes, and the disk has {free:,}, "
                "so nothing is trained; free the disk, or give a --workdir on another disk"
            ) from error

    def save(self, position: Position) -> None:
        """Write a checkpoint, and remove the oldest ones.

        If there is a checkpoint of this step, only its position is replaced, and the path of a
        table file that was moved; nothing is removed then.

        Args:
            position: How far the run has come.

        Raises:
            RunError: The checkpoint cannot be written. The others are unchanged.
        """
        path = self._folder / f"step-{position.step:012d}"
        if path.exists():
            _update_layouts(path, self._tables)
            write_position(path, position)
            self._commit(path)  # a kill may have come before this
            return
        self._free_room()
        with replacing_folder(path, POSITION_FILE) as temporary:
            try:
                saver = tf.train.Checkpoint(**_saved_by_tensorflow(self._tables))
                saver.write(str(temporary / PREFIX))
                for name, table in self._stateful.items():
                    (temporary / name).mkdir()
                    table.snapshot(temporary / name)
            except tf.errors.OpError as error:
                raise system_error(error.message) from error
            _write_layouts(temporary, self._tables)
            write_position(temporary, position)
        for old in list_checkpoints(self._folder)[self._keep :]:
            remove_folder(old)
        self._commit(path)

    def remove_after(self, step: int) -> None:
        """Remove the checkpoints of steps after the given one.

        Args:
            step: The last step whose checkpoint stays. The run is repeated from there.
        """
        for path in list_checkpoints(self._folder):
            if int(path.name.removeprefix("step-")) > step:
                remove_folder(path)

    def _commit(self, newest: Path) -> None:
        """Give each table that the newest checkpoint holds the folders of its kept snapshots."""
        for name, table in self._stateful.items():
            if (newest / name).is_dir():  # else it was saved by another kind of table
                folders = [path / name for path in list_checkpoints(self._folder)]
                table.commit([folder for folder in folders if folder.is_dir()])

    def restore(self, rename_damaged: bool = True) -> Position | None:
        """Load the newest checkpoint that is not damaged into the tables.

        The rows of another kind of table are converted, if they have ids. A damaged checkpoint is
        skipped with a warning. Nothing in the folder is changed before a checkpoint is loaded.

        Args:
            rename_damaged: Whether to then rename the damaged ones; one process of a run does.

        Returns:
            The position of the checkpoint, or None if there is no checkpoint at all.

        Raises:
            RunError: All are damaged, one cannot be read or renamed, or it does not fit the tables.
        """
        position, damaged = find_newest(self._folder, self._load)
        for path in damaged if rename_damaged else ():
            aside = path.with_name(f"damaged-{path.name}")
            remove_folder(aside)
            try:
                path.rename(aside)
            except OSError as error:
                raise RunError(f"cannot rename {path}: {error.strerror}; remove it") from error
        return position

    def read(self) -> Position:
        """Load the newest checkpoint like `restore`, but change nothing in the folder.

        The tables may lack their slots.

        Raises:
            RunError: There is no checkpoint that can be loaded.
        """
        return read_newest(self._folder, self._load)

    def _load(self, path: Path) -> Position:
        """Load one checkpoint, convert tables of another kind, and return the position."""
        position = read_position(path)
        same_layout = {}
        for name, table in self._tables.items():
            before, now = stored.read_layout(path, name), table.layout()
            if stored.is_same_layout(before, now):
                same_layout[name] = table
            else:
                _convert(path, name, table)
                kinds = before["kind"], now["kind"]
                logging.info("%s: table %r of kind %s becomes one of kind %s", path, name, *kinds)
        with_variables = _saved_by_tensorflow(same_layout)
        _check_variables(path, Variables(path), with_variables)
        _restore(path, tf.train.Checkpoint(**with_variables))
        for name in self._stateful.keys() & same_layout.keys():
            self._stateful[name].restore(path / name)
        return position


def _check_variables(path: Path, saved: Variables, tables: Mapping[str, Table]) -> None:
    """Raise RunError unless a checkpoint has every variable of tables, of equal shape and dtype.

    A table that was rounded to the nearest number has no count of writes: set the count to 0.
    """
    for name, table in tables.items():
        for attributes, variable in named_variables(table):
            key = "/".join((name, *attributes, stored.VALUE))
            slot = attributes[-2] if "slots" in attributes else ""
            if key not in saved.shapes:
                if attributes[-1] != _WRITES:
                    raise RunError(stored.absence(path, name, slot))
                variable.assign(tf.zeros_like(variable))
                continue
            stored_as = saved.shapes[key], saved.dtypes[key]
            asked_for = tuple(variable.shape), variable.dtype.name
            if stored_as != asked_for:
                of_slot = f"slot {slot!r} of " if slot else ""
                raise RunError(
                    f"{path} holds {of_slot}table {name!r} with shape {stored_as[0]} of "
                    f"{stored_as[1]}, where {asked_for[0]} of {asked_for[1]} is asked for; give "
                    "the flags and the vocabulary that it was made with, or train in a new workdir"
                )


def _saved_by_tensorflow(tables: Mapping[str, Table]) -> dict[str, Table]:
    """Return the tables that are not dynamic; a dynamic table saves all of itself."""
    return {n: table for n, table in tables.items() if table.layout()["kind"] != "dynamic"}


def _write_layouts(folder: Path, tables: Mapping[str, Table]) -> None:
    """Write the layouts of all tables of a checkpoint to its `tables.json`, which is replaced.

    Raises:
        RunError: The file cannot be written.
    """
    layouts = {name: table.layout() for name, table in tables.items()}
    with replacing(folder / stored.LAYOUTS) as temporary:
        temporary.write_text(json.dumps(layouts))


def _update_layouts(folder: Path, tables: Mapping[str, Table]) -> None:
    """Write the layouts again if they differ from the stored ones only by the path of a file.

    That is so if --table_file was moved since the checkpoint was written. Otherwise do nothing.

    Args:
        folder: The folder of a checkpoint of these tables.

    Raises:
        DamagedError: The stored layouts are damaged.
        RunError: The layouts cannot be read or written.
    """
    before = {name: stored.read_layout(folder, name) for name in tables}
    now = {name: table.layout() for name, table in tables.items()}
    if before != now and all(stored.is_same_layout(before[name], now[name]) for name in tables):
        _write_layouts(folder, tables)


def _convert(folder: Path, name: str, table: Table) -> None:
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
    is_by_key = stored.is_by_key(folder, name)
    if is_by_key and table.slots:
        raise RunError(
            f"{folder / name} holds the rows of --table=dynamic, which training can only go on "
            "with as that; go on with it, or train in a new workdir"
        )
    for slot, target in {"": table, **table.slots}.items():
        ids_N, rows_ND = stored.read_ids(folder, name, slot)
        if not is_by_key and rows_ND.shape != (target.rows, target.columns):
            raise RunError(
                f"{folder} holds table {name!r} with shape {rows_ND.shape}, where "
                f"{(target.rows, target.columns)} is asked for; give the flags and the vocabulary "
                "that it was made with, or train in a new workdir"
            )
        for part in row_slices(*rows_ND.shape):
            target.assign(tf.constant(ids_N[part]), tf.constant(rows_ND[part]))


def _restore(folder: Path, variables: tf.train.Checkpoint) -> None:
    """Assign the saved values to variables; keep the value of a variable that was not saved.

    After an error of TensorFlow all variables are read once, to find damage. An error of Python is
    raised as it is where all files are good.

    Raises:
        DamagedError: A file is missing or damaged.
        RunError: A file cannot be read, or TensorFlow cannot load it for another reason.
    """
    # TensorFlow's errors say less than the system's for a file that cannot be opened.
    with reading(folder):
        for path in list_folder(folder, f"{PREFIX}."):
            open(path, "rb").close()
        with _literal_prefix(folder) as prefix:
            try:
                variables.read(prefix).expect_partial()
            except _FAILURES as error:
                Variables(folder).check()
                if not isinstance(error, tf.errors.OpError):
                    raise
                # Without the name of the operation in the graph.
                lines = error.message.splitlines() or [""]
                reason = lines[0].rpartition("}} ")[2][:200] or type(error).__name__
                path = folder / PREFIX
                if isinstance(error, _DAMAGE):
                    raise DamagedError(f"{path}: {reason}") from error
                raise RunError(
                    f"cannot read {path}: {reason}; mend that and run this again"
                ) from error


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
