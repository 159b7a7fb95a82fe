"""Files that appear whole or not at all; files that are compressed by the look of their name."""

from __future__ import annotations

import bz2
import contextlib
import errno
import gzip
import json
import lzma
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from app.errors import DamagedError, RunError, UsageError

_OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def opener(path: str | Path, plain: Callable = open) -> Callable:
    """The `open` of the standard library that fits the suffix of `path`; `plain` for any other."""
    return _OPENERS.get(os.path.splitext(path)[1].lower(), plain)


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Give a temporary file to write, which replaces `path` when the block ends well.

    Makes the folder of `path`. The disk has the whole new file before the old one goes.

    Raises:
        UsageError: `path` is there and no regular file; it stays as it was.
        RunError: It cannot be written (a full disk, no permission); it stays as it was.
    """
    with _beside(path, "new") as (target, temporary):
        if target.exists() and not target.is_file():
            raise UsageError(f"{path} is a folder or a device; give the name of a file")
        yield temporary
        _fsync(temporary)
        os.replace(temporary, target)
        _fsync(target.parent)


@contextlib.contextmanager
def replacing_folder(path: str | Path, mark: str) -> Iterator[Path]:
    """Give a temporary folder to fill, which replaces `path` when the block ends well.

    The disk has all of the new folder before the old one goes.

    Args:
        path: The folder to make or to replace.
        mark: The file by which a folder that may be replaced is known.

    Raises:
        UsageError: `path` is a file, or a folder with other content; it stays as it was.
        RunError: The folder cannot be written; it stays as it was.
    """
    with _beside(path, "new") as (target, temporary), _beside(path, "old") as (_, former):
        if target.exists() and not target.is_dir():
            raise UsageError(f"{path} is a file; give a new or empty folder")
        if target.exists() and any(target.iterdir()) and not (target / mark).is_file():
            raise UsageError(f"{path} holds other files (no {mark}); give a new or empty folder")
        temporary.mkdir()
        yield temporary
        for part in (*temporary.rglob("*"), temporary):
            _fsync(part)
        if target.exists():  # a folder cannot be renamed onto one with content
            os.replace(target, former)
        try:
            os.replace(temporary, target)
        except BaseException:
            if former.exists():
                os.replace(former, target)
            raise
        _fsync(target.parent)


def remove_folder(path: Path) -> None:
    """Remove a folder so that a reader finds it whole or not at all, if it can be removed."""
    hidden = _hidden_name(path, "gone")
    with contextlib.suppress(OSError):  # it stays, and is in nobody's way
        os.replace(path, hidden)
    _remove(hidden)


def sweep(path: str | Path) -> None:
    """Remove what killed processes left beside `path`, whose last name may be a glob.

    For the only writer of `path`: what another one is writing at this moment goes too.
    """
    path = Path(path)
    for purpose in ("new", "gone"):
        for leftover in path.parent.glob(f".{path.name}.{purpose}-*"):
            _remove(leftover)


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Tell why something at `path`, or below it, cannot be read.

    Raises:
        DamagedError: It is missing.
        RunError: The system refuses it (no permission, a disk that fails, no memory).
    """
    try:
        yield
    except MemoryError as error:
        raise RunError(f"there is not enough memory to read {path}; free some") from error
    except OSError as error:
        found = Path(error.filename) if isinstance(error.filename, str) else path
        is_missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
        if is_missing and found.is_relative_to(path):
            raise DamagedError(f"{found} is missing") from error
        reason = error.strerror or error
        raise RunError(f"cannot read {found}: {reason}; mend that and run this again") from error


class Manifest(dict[str, Any]):
    """What a file says of others that belong to it.

    Raises:
        DamagedError: It is asked for something that it does not say.
    """

    def __init__(self, path: Path, values: dict[str, Any]):
        super().__init__(values)
        self._path = path

    def __missing__(self, name: str) -> Any:
        raise DamagedError(f"{self._path} does not say {name!r}")


def read_manifest(path: Path) -> Manifest:
    """Return the JSON object in a file.

    Raises:
        DamagedError: The file is missing or holds something else.
        RunError: It cannot be read.
    """
    with reading(path):
        content = path.read_bytes()
    try:
        found = json.loads(content)
    except ValueError as error:
        raise DamagedError(f"{path} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise DamagedError(f"{path} holds no JSON object")
    return Manifest(path, found)


def list_folder(folder: Path, prefix: str = "") -> list[Path]:
    """Return the paths in a folder whose names begin so, sorted; none if there is no folder.

    Raises:
        RunError: The folder cannot be read.
    """
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError) as error:
        if not os.path.lexists(folder):
            return []
        raise RunError(f"{folder} is no folder; rename it, or choose another --workdir") from error
    except OSError as error:
        raise RunError(
            f"cannot read {folder}: {error.strerror}; make it readable, or choose another --workdir"
        ) from error
    return [folder / name for name in sorted(names) if name.startswith(prefix)]


def _fsync(path: Path) -> None:
    """Wait until the disk has a file, or the names in a folder: it may lose its power then."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # said by file systems that cannot do it for a folder
            raise
    finally:
        os.close(descriptor)


def _hidden_name(path: Path, purpose: str) -> Path:
    """Return a free name beside a path, which `sweep` knows."""
    return path.parent / f".{path.name}.{purpose}-{secrets.token_hex(4)}"


@contextlib.contextmanager
def _beside(path: str | Path, purpose: str) -> Iterator[tuple[Path, Path]]:
    """What `path` stands for, and a free name in its folder, which is made.

    What has that name afterwards is removed. An OSError within becomes a RunError naming `path`.
    """
    target = Path(os.path.realpath(path))  # a link stays a link
    temporary = _hidden_name(target, purpose)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield target, temporary
    except OSError as error:
        reason = error.strerror or error
        raise RunError(
            f"cannot write {path}: {reason}; free the disk or choose another folder"
        ) from error
    finally:
        _remove(temporary)


def _remove(path: Path) -> None:
    """Removes a file or a folder, if it is there and if it can be."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
