"""Save the tables of a run with their slots in checkpoints, and load them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from absl import logging

from ..errors import RunError
from ..system.checked_files import missing
from ..system.files import remove_folder, replacing, replacing_folder
from ..tables.arrays import row_slices
from ..tables.sharded import ShardedTable
from . import stored
from .checkpoint import (
    POSITION_FILE,
    Position,
    find_newest,
    list_checkpoints,
    read_newest,
    read_position,
    write_position,
)

_SMALL_FILES = 2**20  # bytes of a checkpoint besides its rows, at most


class Checkpoints:
    """The checkpoints of a run in one folder.

    Args:
        folder: The folder of the checkpoints.
        tables: The tables of the run, and other state that is `Checkpointable`, by name.
        keep: How many of the newest checkpoints are kept.
    """

    def __init__(self, folder: Path, tables: Mapping[str, Any], keep: int = 1):
        self._folder, self._tables, self._keep = folder, tables, keep

    def check_room(self) -> None:
        """Check that the disk has room for the rows of the next checkpoint.

        Rows of dynamic tables, which are not made yet, and of those in a file are left out.

        Raises:
            RunError: The disk is too small.
        """
        kinds = "device", "sharded"
        saved = (table for table in self._tables.values() if table.layout()["kind"] in kinds)
        needed = sum(table.bytes() for table in saved) + _SMALL_FILES
        place = next(path for path in self._folder.parents if path.exists())
        free = shutil.disk_usage(place).free
        if free < needed:
            raise RunError(
                f"{self._folder}: a checkpoint takes {needed:,} bytes, and the disk has {free:,}, "
                "so nothing is trained; free the disk, or give a --workdir on another disk"
            )

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
        with replacing_folder(path, POSITION_FILE) as temporary:
            for name, table in self._tables.items():
                (temporary / name).mkdir()
                table.snapshot(temporary / name)
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
        for name, table in self._tables.items():
            if _is_of_this_kind(newest, name, table):
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
        for name, table in self._tables.items():
            if is_same := _is_of_this_kind(path, name, table):
                table.restore(path / name)
            else:
                _convert(path, name, table)
            if not is_same or (path / stored.EARLIER).exists():
                restore_writes(path, name, table)
        return position


def _is_of_this_kind(path: Path, name: str, table: Any) -> bool:
    """Return whether a checkpoint has a snapshot of a table, or of another one that is stored so.

    Raise RunError if it has no table of this name, and DamagedError if it has lost it.
    """
    if not (path / name).is_dir() and not stored.is_earlier(path, name):
        if name in stored.read_layouts(path):
            raise missing(path / name)
        raise RunError(stored.absence(path, name, ""))
    is_same = stored.is_same_layout(stored.read_layout(path, name), table.layout())
    return is_same and (path / name).is_dir()


def _write_layouts(folder: Path, tables: Mapping[str, Any]) -> None:
    """Write the layouts of all tables of a checkpoint to its `tables.json`, which is replaced.

    Raises:
        RunError: The file cannot be written.
    """
    layouts = {name: table.layout() for name, table in tables.items()}
    with replacing(folder / stored.LAYOUTS) as temporary:
        temporary.write_text(json.dumps(layouts))


def _update_layouts(folder: Path, tables: Mapping[str, Any]) -> None:
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


def _convert(folder: Path, name: str, table: Any) -> None:
    """Assign the rows of a stored table that has another layout to a table and its slots.

    A table of an earlier version may have the same layout, in another form. The keys of a stored
    dynamic table are taken as ids; its slots cannot be converted. An id without a stored row keeps
    its initial row.

    Raises:
        DamagedError: The checkpoint is damaged.
        RunError: The shapes differ, the stored rows have no ids, the table is dynamic, the stored
            table is dynamic and the table has slots, or the checkpoint cannot be read.
    """
    before, now = stored.read_layout(folder, name)["kind"], table.layout()["kind"]
    if before != now:
        logging.info("%s: table %r of kind %s becomes one of kind %s", folder, name, before, now)
    if now == "dynamic":
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


def restore_writes(folder: Path, name: str, table: Any) -> None:
    """Set the counts of writes of a table and its slots to those of a stored table."""
    for slot, target in {"": table, **getattr(table, "slots", {})}.items():
        for part in target.parts if isinstance(target, ShardedTable) else [target]:
            if getattr(part, "is_stochastic", False):
                part.writes.assign(stored.count_writes(folder, name, slot))
