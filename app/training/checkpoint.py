"""Checkpoints: the tables with their slots, and the position, in one folder that appears whole."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import tensorflow as tf
from absl import logging

from app.errors import DamagedError, RunError
from app.files import COUNT, read_json, replacing_folder, synchronise
from app.tables.base import Kept, Table
from app.tables.variable import variables
from app.training import stored

T = TypeVar("T")

_STATE = "state.json"
# What a damaged file makes Python and TensorFlow raise; its readers are not of one mind.
_DAMAGE = (
    tf.errors.OpError,
    OSError,
    ValueError,
    TypeError,
    LookupError,
    RuntimeError,
    AssertionError,
)
# What it raises where another process that was to read is lost.
_LOST = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)


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
    (see `tables.base.Kept`) saves it itself, in a folder of its name.
    """

    def __init__(self, folder: Path, tables: Mapping[str, Table], keep: int = 1):
        self._folder, self._keep = folder, keep
        self._tables = tables
        self._kept = {name: table for name, table in tables.items() if isinstance(table, Kept)}

    def save(self, position: Position) -> None:
        """Writes a checkpoint, then removes the oldest. RunError if it cannot; none is lost."""
        path = self._folder / f"step-{position.step:012d}"
        if path.exists():
            stored.follow(path, self._tables)
            self._commit(path)  # a kill may have come before
            return
        with replacing_folder(path, _STATE) as temporary:
            try:
                self._saver(self._tables).write(str(temporary / stored.TABLES))
                for name, table in self._kept.items():
                    (temporary / name).mkdir()
                    table.snapshot(temporary / name)
            except tf.errors.OpError as error:
                raise OSError(None, error.message.splitlines()[0]) from error
            stored.write_layouts(temporary, self._tables)
            (temporary / _STATE).write_text(json.dumps(dataclasses.asdict(position)))
            if self._kept:  # what `committed` removes would be the only way back
                synchronise(temporary)
        if self._kept:
            synchronise(self._folder)
        for old in paths(self._folder)[self._keep :]:
            shutil.rmtree(old, ignore_errors=True)
        self._commit(path)

    def forget(self, after: int) -> None:
        """Removes the checkpoints of later steps than this, of a run that is made again."""
        for path in paths(self._folder):
            if int(path.name.removeprefix("step-")) > after:
                shutil.rmtree(path, ignore_errors=True)

    def _commit(self, newest: Path) -> None:
        """Tells the tables that a checkpoint has of the snapshots that are kept."""
        for name, table in self._kept.items():
            if (newest / name).is_dir():  # not where it is of another kind of table
                folders = [path / name for path in paths(self._folder)]
                table.committed([folder for folder in folders if folder.is_dir()])

    def restore(self, mends: bool = True) -> Position | None:
        """Loads the newest checkpoint that is whole; None if there is none at all.

        Rows of another kind of table are converted where they have ids. A damaged checkpoint is
        passed over, which is logged, and put out of the way of later ones once another is loaded,
        by the process that `mends`.
        RunError if all are damaged, and if the tables or their slots have other shapes than those
        saved.
        """
        position, damaged = self._load()
        if position is not None:
            for path in damaged if mends else ():
                aside = path.with_name(f"damaged-{path.name}")
                shutil.rmtree(aside, ignore_errors=True)
                path.rename(aside)
        elif damaged:
            raise RunError(f"every checkpoint in {self._folder} is damaged; train in a new workdir")
        return position

    def read(self) -> Position:
        """As `restore`, and leaves the folder as it is. RunError if nothing can be loaded.

        For tables without their slots as well.
        """
        position, damaged = self._load()
        if position is None:
            raise RunError(_none_whole(self._folder, len(damaged)))
        return position

    def _load(self) -> tuple[Position | None, list[Path]]:
        """The position of the newest checkpoint that is whole, and the damaged ones after it."""
        damaged: list[Path] = []
        for path in paths(self._folder):
            try:
                position = _position(path)
                self._load_tables(path)
            except (RunError, *_LOST) as error:
                if not isinstance(error, DamagedError):
                    raise
                _tell_damaged(path, error)
                damaged.append(path)
            except _DAMAGE as error:
                _tell_damaged(path, error)
                damaged.append(path)
            else:
                return position, damaged
        return None, damaged

    def _load_tables(self, path: Path) -> None:
        same = {}
        for name, table in self._tables.items():
            before, now = stored.layout_in(path, name), stored.layout(table)
            if stored.is_alike(before, now):
                same[name] = table
            else:
                kinds = before["kind"], now["kind"]
                logging.info("%s: table %r of kind %s becomes one of kind %s", path, name, *kinds)
                stored.convert(path, name, table)
        self._check_shapes(path, same)
        status = self._saver(same).read(str((path / stored.TABLES).absolute()))  # others may read
        # Slots that are not asked for stay where they are.
        status.expect_partial().assert_existing_objects_matched()
        for name in self._kept.keys() & same.keys():
            self._kept[name].revert(path / name)

    def _saver(self, tables: Mapping[str, Table]) -> tf.train.Checkpoint:
        """What saves and reads the variables of some of the tables."""
        return tf.train.Checkpoint(**_of_variables(tables))

    def _check_shapes(self, path: Path, tables: Mapping[str, Table]) -> None:
        saved = tf.train.load_checkpoint(str(path / stored.TABLES)).get_variable_to_shape_map()
        for name, table in _of_variables(tables).items():
            for place, variable in variables(table):
                shape = saved.get("/".join((name, *place, stored.VALUE)), variable.shape)
                if shape != variable.shape:
                    slot = f"slot {place[-2]!r} of " if "slots" in place else ""
                    raise RunError(
                        f"{path} holds {slot}table {name!r} with shape {tuple(shape)}, where "
                        f"{tuple(variable.shape)} is asked for; give the flags and the vocabulary "
                        "that it was made with, or train in a new workdir"
                    )


def _of_variables(tables: Mapping[str, Table]) -> dict[str, Table]:
    """Those with variables that TensorFlow is to save: a dynamic table saves its rows itself."""
    return {n: table for n, table in tables.items() if stored.layout(table)["kind"] != "dynamic"}


def paths(folder: Path) -> list[Path]:
    """The checkpoints in a folder, newest first."""
    return sorted(folder.glob("step-*"), reverse=True)


def of_newest(folder: Path, read: Callable[[Path], T]) -> T:
    """What `read` makes of the newest checkpoint that is whole. RunError if there is none."""
    found = paths(folder)
    for path in found:
        try:
            return read(path)
        except _DAMAGE as error:
            if isinstance(error, RunError) and not isinstance(error, DamagedError):
                raise
            _tell_damaged(path, error)
    raise RunError(_none_whole(folder, len(found)))


def newest_position(folder: Path) -> Position | None:
    """Where the newest checkpoint with a readable state stands; None if there is none."""
    for path in paths(folder):
        with contextlib.suppress(*_DAMAGE):
            return _position(path)
    return None


def _none_whole(folder: Path, damaged: int) -> str:
    what = "every checkpoint is damaged" if damaged else "there is no checkpoint"
    return f"{folder}: {what}; run app.train with this workdir first"


def _position(path: Path) -> Position:
    found = read_json(path / _STATE, _SHAPE)
    return Position(**{name: found[name] for name in _SHAPE if found.get(name) is not None})


def _tell_damaged(path: Path, error: Exception) -> None:
    reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
    logging.warning("%s is damaged, trying the one before it: %s", path, reason)
