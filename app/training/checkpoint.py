"""Checkpoints: the tables with their slots, and the position, in one folder that appears whole."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf
from absl import logging

from app.errors import RunError
from app.files import replacing_folder
from app.tables.variable import variables

_TABLES, _STATE = "tables", "state.json"
# What a checkpoint's key of a variable ends with.
_VALUE = ".ATTRIBUTES/VARIABLE_VALUE"
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


@dataclasses.dataclass
class Position:
    """How far a run has come: everything that it needs to go on besides the tables.

    step: steps made. epoch: epochs finished. batch: batches (calls of S steps) made of the epoch
    after those. batches: how many an epoch has; as expected during the first epoch of a text,
    counted after it. expected: how many were expected. words: of the epochs finished. seconds:
    spent in training.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    batches: int = 1
    expected: int = 0
    words: float = 0.0
    seconds: float = 0.0

    @property
    def done(self) -> float:
        """Epochs made, with the part of the current one as far as one can tell."""
        return self.epoch + min(self.batch / self.batches, 1.0)


class Checkpoints:
    """The newest `keep` checkpoints of a run, in `folder`."""

    def __init__(self, folder: Path, tables: Mapping[str, tf.Module], keep: int = 1):
        self._folder, self._keep = folder, keep
        self._tables = tables
        self._saver = tf.train.Checkpoint(**tables)

    def save(self, position: Position) -> None:
        """Writes a checkpoint, then removes the oldest. RunError if it cannot; none is lost."""
        path = self._folder / f"step-{position.step:012d}"
        if path.exists():
            return
        with replacing_folder(path, _STATE) as temporary:
            try:
                self._saver.write(str(temporary / _TABLES))
            except tf.errors.OpError as error:
                raise OSError(None, error.message.splitlines()[0]) from error
            (temporary / _STATE).write_text(json.dumps(dataclasses.asdict(position)))
        for old in paths(self._folder)[self._keep :]:
            shutil.rmtree(old, ignore_errors=True)

    def restore(self) -> Position | None:
        """Loads the newest checkpoint that is whole; None if there is none at all.

        A damaged one is passed over, which is logged, and out of the way of later ones once
        another is loaded. RunError if all are damaged, and if the tables or their slots have other
        shapes than those saved.
        """
        position, damaged = self._load()
        if position is not None:
            for path in damaged:
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
                saved = tf.train.load_checkpoint(str(path / _TABLES)).get_variable_to_shape_map()
                self._check_shapes(path, saved)
                status = self._saver.read(str(path / _TABLES))
                # Slots that are not asked for stay where they are.
                status.expect_partial().assert_existing_objects_matched()
            except RunError:
                raise
            except _DAMAGE as error:
                _tell_damaged(path, error)
                damaged.append(path)
            else:
                return position, damaged
        return None, damaged

    def _check_shapes(self, path: Path, saved: Mapping[str, list[int]]) -> None:
        for name, table in self._tables.items():
            for place, variable in variables(table):
                shape = saved.get("/".join((name, *place, _VALUE)), variable.shape)
                if shape != variable.shape:
                    slot = f"slot {place[-2]!r} of " if len(place) > 1 else ""
                    raise RunError(
                        f"{path} holds {slot}table {name!r} with shape {tuple(shape)}, where "
                        f"{tuple(variable.shape)} is asked for; give the flags and the vocabulary "
                        "that it was made with, or train in a new workdir"
                    )


def paths(folder: Path) -> list[Path]:
    """The checkpoints in a folder, newest first."""
    return sorted(folder.glob("step-*"), reverse=True)


def read_rows(folder: Path, table: str) -> np.ndarray:
    """All rows of a table, (V, D) float32, from the newest checkpoint that is whole.

    RunError if there is none.
    """
    found = paths(folder)
    for path in found:
        try:
            reader = tf.train.load_checkpoint(str(path / _TABLES))
            return reader.get_tensor(f"{table}/values/{_VALUE}")
        except _DAMAGE as error:
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
    return Position(**json.loads((path / _STATE).read_text()))


def _tell_damaged(path: Path, error: Exception) -> None:
    reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
    logging.warning("%s is damaged, trying the one before it: %s", path, reason)
