"""The checkpoints of a run, newest first, and the position of each.

A checkpoint is a folder `step-<number>` that appears as a whole or not at all. `table_checkpoints`
writes and loads its tables.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from absl import logging

from ..errors import DamagedError, RunError
from ..settings import RunConfig
from ..system.checked_files import COUNT, list_folder, read_json, reading
from ..system.files import replacing
from .workdir import Workdir, read_settings

T = TypeVar("T")

POSITION_FILE = "state.json"


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
    result, _ = find_newest(folder, read)
    if result is None:
        remedy = "run `lexrow train` with this workdir first"
        raise RunError(f"{folder}: there is no checkpoint; {remedy}")
    return result


def newest_position(folder: Path) -> Position | None:
    """Return the newest position that is not damaged, or None; load no table, and log nothing.

    Raises:
        RunError: A checkpoint cannot be read.
    """
    return find_newest(folder, read_position, is_quiet=True)[0]


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


def find_newest(
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
