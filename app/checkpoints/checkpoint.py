"""Checkpoints: the tables with their slots, and the position, in one folder that appears whole."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import tensorflow as tf
from absl import logging

from .. import __name__ as PACKAGE
from ..errors import DamagedError, RunError
from ..system.checked_files import COUNT, list_folder, read_json, reading
from ..system.files import remove_folder, replacing_folder
from ..tables.base import Checkpointable, Table
from ..tables.variable import named_variables
from . import bundle, stored
from .bundle import Bundle

T = TypeVar("T")

_STATE = "state.json"
_COUNT = "writes"  # the variable of a table that counts its draws, where it is rounded so


@dataclasses.dataclass
class Position:
    """How far a run has come: everything that it needs to go on besides the tables.

    step: steps made. epoch: epochs finished. batch: batches (calls of S steps) made of the epoch
    after those. batches: how many an epoch has; as expected during the first epoch of a text,
    counted after it. expected: how many were expected. words: of the epochs finished. seconds:
    spent in training. best: the score of the best epoch, where that is kept. since: epochs after.
    micro_batches: of each step, by which the batches of an epoch are arranged.
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

    @property
    def done(self) -> float:
        """Epochs made, with the part of the current one as far as one can tell."""
        return self.epoch + min(self.batch / self.batches, 1.0)


# The shape of its file; fields came with time.
_SHAPE = {
    "step": COUNT,
    **dict.fromkeys(("epoch", "batch", "expected", "since"), (COUNT, None)),
    **dict.fromkeys(("batches", "micro_batches"), (range(1, 2**63), None)),
    **dict.fromkeys(("words", "seconds", "best"), (float, None)),
}


class Checkpoints:
    """The newest `keep` checkpoints of a run, in `folder`.

    tables: by name. What variables they have is saved by TensorFlow; a table with more than those
    (see `tables.base.Checkpointable`) saves it itself, in a folder of its name.
    """

    def __init__(self, folder: Path, tables: Mapping[str, Table], keep: int = 1):
        self._folder, self._keep = folder, keep
        self._tables = tables
        self._kept = {
            name: table for name, table in tables.items() if isinstance(table, Checkpointable)
        }

    def save(self, position: Position) -> None:
        """Write a checkpoint; when the disk has it, remove the oldest.

        Raises:
            RunError: It cannot be written; the others are as they were.
        """
        path = self._folder / f"step-{position.step:012d}"
        if path.exists():
            stored.update_layouts(path, self._tables)
            self._commit(path)  # a kill may have come before
            return
        with replacing_folder(path, _STATE) as temporary:
            try:
                self._saver(self._tables).write(str(temporary / bundle.PREFIX))
                for name, table in self._kept.items():
                    (temporary / name).mkdir()
                    table.snapshot(temporary / name)
            except tf.errors.OpError as error:
                raise OSError(None, error.message.splitlines()[0]) from error
            stored.write_layouts(temporary, self._tables)
            (temporary / _STATE).write_text(json.dumps(dataclasses.asdict(position)))
        for old in paths(self._folder)[self._keep :]:
            remove_folder(old)
        self._commit(path)

    def forget(self, after: int) -> None:
        """Removes the checkpoints of later steps than this, of a run that is made again."""
        for path in paths(self._folder):
            if int(path.name.removeprefix("step-")) > after:
                remove_folder(path)

    def _commit(self, newest: Path) -> None:
        """Tells the tables that a checkpoint has of the snapshots that are kept."""
        for name, table in self._kept.items():
            if (newest / name).is_dir():  # not where it is of another kind of table
                folders = [path / name for path in paths(self._folder)]
                table.commit([folder for folder in folders if folder.is_dir()])

    def restore(self, mends: bool = True) -> Position | None:
        """Load the newest checkpoint that is whole; return None if there is none at all.

        Rows of another kind of table are converted where they have ids. A damaged checkpoint is
        passed over, which is logged, and put out of the way of later ones once another is loaded,
        by the process that `mends`. Until then nothing in the folder is changed.

        Raises:
            RunError: All are damaged, or one cannot be read, or its tables or their slots are not
                those asked for.
        """
        position, damaged = _newest(self._folder, self._load)
        if position is not None:
            for path in damaged if mends else ():
                aside = path.with_name(f"damaged-{path.name}")
                remove_folder(aside)
                try:
                    path.rename(aside)
                except OSError as error:
                    raise RunError(f"cannot rename {path}: {error.strerror}; remove it") from error
        elif damaged:
            raise RunError(f"every checkpoint in {self._folder} is damaged; train in a new workdir")
        return position

    def read(self) -> Position:
        """Load as `restore` does, and leave the folder as it is; tables may lack their slots.

        Raises:
            RunError: There is nothing that can be loaded.
        """
        return of_newest(self._folder, self._load)

    def _load(self, path: Path) -> Position:
        position = _position(path)
        same = {}
        for name, table in self._tables.items():
            before, now = stored.read_layout(path, name), table.layout()
            if stored.is_same_layout(before, now):
                same[name] = table
            else:
                kinds = before["kind"], now["kind"]
                logging.info("%s: table %r of kind %s becomes one of kind %s", path, name, *kinds)
                stored.convert(path, name, table)
        saved = Bundle(path)
        _check(path, saved, _of_variables(same))
        saved.restore(self._saver(same))
        for name in self._kept.keys() & same.keys():
            self._kept[name].restore(path / name)
        return position

    def _saver(self, tables: Mapping[str, Table]) -> tf.train.Checkpoint:
        """What saves and reads the variables of some of the tables."""
        return tf.train.Checkpoint(**_of_variables(tables))


def _check(path: Path, saved: Bundle, tables: Mapping[str, Table]) -> None:
    """Check that a checkpoint has the variables of tables; their counts of writes begin at 0.

    A table that was rounded to the nearest has no such count, and may go on with it.
    """
    for name, table in tables.items():
        for place, variable in named_variables(table):
            key = "/".join((name, *place, bundle.VALUE))
            slot = place[-2] if "slots" in place else ""
            if key not in saved.shapes:
                if place[-1] != _COUNT:
                    raise RunError(stored.absence(path, name, slot))
                variable.assign(tf.zeros_like(variable))
                continue
            found = tuple(saved.shapes[key]), saved.dtypes[key].name
            wanted = tuple(variable.shape), variable.dtype.name
            if found != wanted:
                of_slot = f"slot {slot!r} of " if slot else ""
                raise RunError(
                    f"{path} holds {of_slot}table {name!r} with shape {found[0]} of {found[1]}, "
                    f"where {wanted[0]} of {wanted[1]} is asked for; give the flags and the "
                    "vocabulary that it was made with, or train in a new workdir"
                )


def _of_variables(tables: Mapping[str, Table]) -> dict[str, Table]:
    """Those with variables that TensorFlow is to save: a dynamic table saves its rows itself."""
    return {n: table for n, table in tables.items() if table.layout()["kind"] != "dynamic"}


def paths(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, newest first.

    Raises:
        RunError: The folder cannot be read.
    """
    return [p for p in reversed(list_folder(folder)) if re.fullmatch("step-[0-9]+", p.name)]


def of_newest(folder: Path, read: Callable[[Path], T]) -> T:
    """Return what `read` makes of the newest checkpoint that is whole.

    Args:
        folder: The folder of the checkpoints; a job that runs may write there meanwhile.
        read: A function of the path of one; raises DamagedError where that is damaged.

    Raises:
        RunError: There is no whole checkpoint, or one cannot be read.
    """
    found, damaged = _newest(folder, read)
    if found is None:
        what = "every checkpoint is damaged" if damaged else "there is no checkpoint"
        raise RunError(f"{folder}: {what}; run {PACKAGE}.train with this workdir first")
    return found


def newest_position(folder: Path) -> Position | None:
    """Return where the newest checkpoint with a whole state stands; None if there is none.

    Raises:
        RunError: A checkpoint cannot be read.
    """
    return _newest(folder, _position, is_told=False)[0]


def _newest(
    folder: Path, read: Callable[[Path], T], is_told: bool = True
) -> tuple[T | None, list[Path]]:
    """Return what `read` makes of the newest whole checkpoint, and the damaged ones after it.

    One that is gone when it cannot be read was removed by a job that runs and has saved a newer
    one, which is then read.
    """
    damaged: list[Path] = []
    while left := [path for path in paths(folder) if path not in damaged]:
        path = left[0]
        try:
            with reading(path):
                return read(path), damaged
        except RunError as error:
            if path not in paths(folder):
                continue
            if not isinstance(error, DamagedError):
                raise
            if is_told:
                logging.warning("%s is damaged, trying the one before it: %s", path, error)
            damaged.append(path)
    return None, damaged


def _position(path: Path) -> Position:
    """Return the position in the state of a checkpoint."""
    found = read_json(path / _STATE, _SHAPE)
    return Position(**{name: found[name] for name in _SHAPE if found.get(name) is not None})
