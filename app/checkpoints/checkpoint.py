"""Checkpoints of a run: its tables with their slots, and its position.

A checkpoint is a folder `step-<number>` that appears as a whole or not at all.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import tensorflow as tf
from absl import logging

from ..errors import DamagedError, RunError
from ..settings import RunConfig
from ..system.checked_files import COUNT, list_folder, read_json, reading
from ..system.files import remove_folder, replacing, replacing_folder, system_error
from ..tables.base import Checkpointable, Table
from ..tables.device import named_variables
from . import stored
from .workdir import Workdir, read_settings

T = TypeVar("T")

POSITION_FILE = "state.json"

_WRITES = "writes"  # the variable that counts the writes of a table with stochastic rounding


@dataclasses.dataclass
class Position:
    """How far a run has come: all that it needs to continue, besides its tables.

    Attributes:
        step: The number of steps made.
        epoch: The number of epochs finished.
        batch: The number of batches (calls of S steps) made in the current epoch.
        batches: The number of batches of an epoch, an estimate in the first epoch of a text.
        expected: The number of batches that was expected.
        words: The number of words in the finished epochs.
        seconds: The time spent in training.
        best: The score of the best epoch, if the best epoch is kept.
        since: The number of epochs after the best one.
        micro_batches: The micro-batches of a step, on which the order of the data depends.
        unscored: Whether the epoch that has just ended is saved, but not scored yet.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    batches: int = 1
    expected: int = 0
    words: float = 0.0
    seconds: float = 0.0
    best: float | None = None
    since: int = 0
    micro_batches: int = 1
    unscored: bool = False

    @property
    def done(self) -> float:
        """The number of epochs made, with the estimated share of the current one."""
        return self.epoch + min(self.batch / self.batches, 1.0)

    def is_at_end(self, epochs: int, patience: int) -> bool:
        """Return whether a run is at its end: by its last epoch or by --patience."""
        return self.epoch >= epochs or 0 < patience <= self.since

    def expect_batches(self, expected: int) -> None:
        """Set `batches` to an estimate, unless it is the one that `batches` came from.

        It may be the exact number of a finished epoch since.
        """
        if self.expected != expected:
            self.batches = self.expected = expected


# The shape of its JSON file. Older versions wrote fewer fields.
_SHAPE = {
    "step": COUNT,
    **dict.fromkeys(("epoch", "batch", "expected", "since"), (COUNT, None)),
    **dict.fromkeys(("batches", "micro_batches"), (range(1, 2**63), None)),
    **dict.fromkeys(("words", "seconds", "best"), (float, None)),
    "unscored": (bool, None),
}


def read_position(path: Path) -> Position:
    """Read the position in a checkpoint; a field that an older version lacks has its default.

    Args:
        path: The folder of the checkpoint.

    Raises:
        DamagedError: The position is damaged.
        RunError: The position cannot be read.
    """
    state = read_json(path / POSITION_FILE, _SHAPE)
    return Position(**{name: state[name] for name in _SHAPE if state.get(name) is not None})


def write_position(path: Path, position: Position) -> None:
    """Write the position of a checkpoint, unless it is there already; replace another one.

    Args:
        path: The folder of the checkpoint.

    Raises:
        RunError: The file cannot be written.
    """
    file, text = path / POSITION_FILE, json.dumps(dataclasses.asdict(position))
    if not (file.is_file() and file.read_bytes() == text.encode()):
        with replacing(file) as temporary:
            temporary.write_text(text)


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

    def newest(self) -> Position | None:
        """Return the position of the newest checkpoint, or None (see `newest_position`)."""
        return newest_position(self._folder)

    def check_room(self) -> None:
        """Check that the disk has room for the variables of the next checkpoint.

        Raises:
            RunError: It has not.
        """
        tables = _saved_by_tensorflow(self._tables).values()
        variables = (variable for table in tables for _, variable in named_variables(table))
        needed = sum(item.shape.num_elements() * item.dtype.size for item in variables)
        free = shutil.disk_usage(next(path for path in self._folder.parents if path.exists())).free
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
            stored.update_layouts(path, self._tables)
            write_position(path, position)
            self._commit(path)  # a kill may have come before this
            return
        with replacing_folder(path, POSITION_FILE) as temporary:
            try:
                saver = tf.train.Checkpoint(**_saved_by_tensorflow(self._tables))
                saver.write(str(temporary / stored.PREFIX))
                for name, table in self._stateful.items():
                    (temporary / name).mkdir()
                    table.snapshot(temporary / name)
            except tf.errors.OpError as error:
                raise system_error(error.message) from error
            stored.write_layouts(temporary, self._tables)
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
        position, damaged = _newest(self._folder, self._load)
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
                stored.convert(path, name, table)
                kinds = before["kind"], now["kind"]
                logging.info("%s: table %r of kind %s becomes one of kind %s", path, name, *kinds)
        saved = stored.Bundle(path)
        with_variables = _saved_by_tensorflow(same_layout)
        _check_variables(path, saved, with_variables)
        saved.restore(tf.train.Checkpoint(**with_variables))
        for name in self._stateful.keys() & same_layout.keys():
            self._stateful[name].restore(path / name)
        return position


def _check_variables(path: Path, saved: stored.Bundle, tables: Mapping[str, Table]) -> None:
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
            stored_as = tuple(saved.shapes[key]), saved.dtypes[key].name
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


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the folders of the checkpoints in a folder, newest first.

    Args:
        folder: The folder of all checkpoints of a run.

    Raises:
        RunError: The folder cannot be read.
    """
    return [p for p in reversed(list_folder(folder)) if re.fullmatch("step-[0-9]+", p.name)]


def read_newest(folder: Path, read: Callable[[Path], T]) -> T:
    """Read the newest checkpoint that is not damaged; skip a damaged one with a warning.

    Args:
        folder: The folder of the checkpoints. A running job may write there meanwhile.
        read: A function from the folder of a checkpoint to any result. It raises DamagedError if
            the checkpoint is damaged.

    Returns:
        The result of `read`.

    Raises:
        RunError: There is no such checkpoint, or one cannot be read.
    """
    result, _ = _newest(folder, read)
    if result is None:
        remedy = "run `lexrow train` with this workdir first"
        raise RunError(f"{folder}: there is no checkpoint; {remedy}")
    return result


def newest_position(folder: Path) -> Position | None:
    """Return the newest position that is not damaged, or None; load no table, and log nothing.

    Args:
        folder: The folder of the checkpoints.

    Raises:
        RunError: A checkpoint cannot be read.
    """
    return _newest(folder, read_position, is_quiet=True)[0]


def is_finished(workdir: Workdir, asked: RunConfig | None = None) -> bool:
    """Return whether the run in a workdir is at its end: all epochs are made, or by --patience.

    It reads the flags and the newest position of the workdir, and changes nothing. Without a
    position the run is not at its end. A missing flag counts as 0, so a run with a position and
    without flags is at its end.

    Args:
        workdir: The workdir of the run; it may be empty.
        asked: If given, the flags must also have its values of --epochs and --patience. A run that
            is extended has other flags until its chief has written them.

    Raises:
        RunError: A checkpoint cannot be read.
        UsageError: The flags cannot be read.
    """
    position = newest_position(workdir.checkpoints)
    flags = read_settings(workdir.path)
    limits = tuple(flags.get(name, 0) for name in ("epochs", "patience"))
    is_other = asked is not None and limits != (asked.epochs, asked.patience)
    return position is not None and position.is_at_end(*limits) and not is_other


def count_newest_rows(folder: Path, name: str) -> int | None:
    """Return the rows of a table in the newest checkpoint that is not damaged; None without one.

    No table is loaded, and nothing is logged.

    Args:
        folder: The folder of the checkpoints.

    Raises:
        RunError: A checkpoint cannot be read, or has no such rows by id.
    """
    return _newest(folder, lambda path: stored.count_rows(path, name), is_quiet=True)[0]


def _newest(
    folder: Path, read: Callable[[Path], T], is_quiet: bool = False
) -> tuple[T | None, list[Path]]:
    """Return the result of `read` for the newest good checkpoint, and the newer, damaged ones.

    The result is None if there is no checkpoint. If all are damaged, raise RunError, or return None
    if `is_quiet`; then no damage is logged. If a running job removes the checkpoint that is being
    read, it has saved a newer one: that one is then read. Other errors are raised.
    """
    damaged: list[Path] = []
    while candidates := [path for path in list_checkpoints(folder) if path not in damaged]:
        path = candidates[0]
        try:
            with reading(path):
                return read(path), damaged
        except RunError as error:
            if path not in list_checkpoints(folder):
                continue
            if not isinstance(error, DamagedError):
                raise
            if not is_quiet:
                then = ", trying the one before it" if candidates[1:] else ""
                logging.warning("%s is damaged%s: %s", path, then, error)
            damaged.append(path)
    if damaged and not is_quiet:
        raise RunError(f"every checkpoint in {folder} is damaged; train in a new workdir")
    return None, damaged
