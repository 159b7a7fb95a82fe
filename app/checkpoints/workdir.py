"""The folder of a run: what lies where, and that one job at a time writes there."""

from __future__ import annotations

import contextlib
import fcntl
import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .. import __name__ as PACKAGE
from ..config import flagfiles
from ..errors import UsageError
from ..system import checked_files
from ..system.checked_files import list_folder
from ..system.files import replacing, sweep


class Workdir:
    """Paths in the folder of a run: see the properties."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.flags = self.path / "flags.cfg"
        self.vocabulary = self.path / "vocab.tsv"
        self.labels = self.path / "labels.tsv"
        self.users = self.path / "users.tsv"
        self.items = self.path / "items.tsv"
        self.known = self.path / "known.npz"
        self.corpus = self.path / "corpus.json"
        self.checkpoints = self.path / "checkpoints"
        self.best = self.path / "best"
        self.owner = self.path / "owner.json"
        self.metrics = self.path / "metrics.jsonl"
        self.tensorboard = self.path / "tensorboard"
        self.cache = self.path / "cache"

    @property
    def trained(self) -> Path:
        """The folder of the checkpoints to use: that of the best epoch, if one is kept."""
        return self.best if list_folder(self.best, "step-") else self.checkpoints

    def has(self, path: Path) -> bool:
        """Return whether a file that every trained run keeps is there.

        Args:
            path: One of the files of this workdir.

        Raises:
            DamagedError: It is missing, and a checkpoint is there.
        """
        if path.exists():
            return True
        # A parameter server elsewhere has its part of the checkpoints, and no position.
        steps = list_folder(self.checkpoints, "step-")
        if any((step / "state.json").exists() for step in steps):
            raise checked_files.missing(path)
        return False

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Make the folder and keep other jobs out of it for the length of the block.

        The lock goes with the process, so that a killed job leaves none. The half-written files
        that it may have left are removed.

        Raises:
            UsageError: The folder cannot be written, another job holds it, or a folder or a device
                has the name of a file to write.
        """
        with contextlib.ExitStack() as stack:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                lock = stack.enter_context(open(self.path / "lock", "a"))
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise UsageError(
                    f"--workdir={self.path}: another job is running there; "
                    "wait for it or choose another folder"
                ) from error
            except OSError as error:
                raise UsageError(
                    f"--workdir={self.path}: {error.strerror}; choose a folder that can be written"
                ) from error
            names = (self.vocabulary, self.labels, self.users, self.items, self.known)
            written = (self.flags, *names, self.corpus, self.owner, self.metrics)
            for path in written:  # before anything is trained or changed
                if path.exists() and not path.is_file():
                    raise UsageError(
                        f"{path} is a folder or a device, not a file; remove it, or choose another "
                        "--workdir"
                    )
            folders = (self.checkpoints, self.best, self.cache, self.tensorboard)
            for path in (*written, *(folder / "*" for folder in folders)):
                sweep(path)
            yield


def read_flags(path: Path) -> dict[str, str]:
    """Return the flags of a flagfile that `write_flags` made, as text; none if there is no file.

    Raises:
        UsageError: The file cannot be read.
    """
    try:
        return flagfiles.values(flagfiles.read(path))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise UsageError(
            f"cannot read {path}: {error}; mend it, or choose a new --workdir"
        ) from error


def write_flags(path: Path, settings: dict[str, Any]) -> None:
    """Write a flagfile with every setting, which runs the job again."""
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(f"# Every flag of this run: python -m {PACKAGE}.train --flagfile=THIS\n")
        for name, value in settings.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            file.write(f"{flagfiles.line(name, text)}\n")


def owner(workdir: Workdir, resume: bool = False) -> str:
    """Return a text that no other run has, for files outside of the workdir.

    Args:
        workdir: Where the text is kept; it is made at the first call.
        resume: Whether a file that bears the text is there already, so that it must be kept.

    Raises:
        DamagedError: The file with the text is damaged, or missing where it must be there.
    """
    known = read_json(workdir.owner, {"owner": str})
    if known is None:
        if resume:
            raise checked_files.missing(workdir.owner)
        known = {"owner": secrets.token_hex(16)}
        write_json(workdir.owner, known)
    return known["owner"]


def read_json(path: Path, shape: Any = dict) -> Any:
    """Return the checked value of a JSON file, or None if there is no file."""
    return checked_files.read_json(path, shape, optional=True)


def write_json(path: Path, value: Any) -> None:
    """Writes the file whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
