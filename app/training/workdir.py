"""The folder of a run: what lies where, and that one job at a time writes there."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from app.errors import RunError, UsageError
from app.files import replacing


class Workdir:
    """Paths in the folder of a run: see the properties."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.flags = self.path / "flags.cfg"
        self.vocabulary = self.path / "vocab.tsv"
        self.corpus = self.path / "corpus.json"
        self.checkpoints = self.path / "checkpoints"
        self.metrics = self.path / "metrics.jsonl"
        self.tensorboard = self.path / "tensorboard"
        self.cache = self.path / "cache"

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Makes the folder and keeps other jobs out of it for the length of the block.

        The lock goes with the process, so that a killed job leaves none. UsageError if the folder
        cannot be written or another job holds it.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = open(self.path / "lock", "a")  # noqa: SIM115 - closed below
        except OSError as error:
            raise UsageError(
                f"--workdir={self.path}: {error.strerror}; choose a folder that can be written"
            ) from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise UsageError(
                    f"--workdir={self.path}: another job is running there; "
                    "wait for it or choose another folder"
                ) from error
            yield


def read_flags(path: Path) -> dict[str, str]:
    """The flags of a flagfile that `write_flags` made, as text; none if there is no file."""
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    pairs = (line[2:].partition("=") for line in lines if line.startswith("--"))
    return {name: value for name, _, value in pairs}


def write_flags(path: Path, settings: dict[str, Any]) -> None:
    """A flagfile with every setting; it reruns the job."""
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write("# Every flag of this run: python -m app.train --flagfile=THIS\n")
        for name, value in settings.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            file.write(f"--{name}={text}\n")


def read_json(path: Path) -> Any:
    """The value in a file, or None where there is no file. RunError if it is damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise RunError(f"{path} is damaged ({error}); delete it or the workdir") from error


def write_json(path: Path, value: Any) -> None:
    """Writes the file whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def size_of(path: Path) -> int:
    """Bytes of the files below a folder."""
    return sum(os.path.getsize(file) for file in path.rglob("*") if file.is_file())
