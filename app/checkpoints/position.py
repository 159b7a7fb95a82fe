"""How far a run has come, and the file of a checkpoint that says so."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from ..system.checked_files import COUNT, read_json
from ..system.files import replacing

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
        position: The position.

    Raises:
        RunError: The file cannot be written.
    """
    file, text = path / POSITION_FILE, json.dumps(dataclasses.asdict(position))
    if not (file.is_file() and file.read_bytes() == text.encode()):
        with replacing(file) as temporary:
            temporary.write_text(text)
