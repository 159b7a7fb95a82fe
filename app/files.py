"""Files that appear whole or not at all; files that are compressed by the look of their name."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from app.errors import RunError, UsageError

_OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def opener(path: str | Path, plain: Callable = open) -> Callable:
    """The `open` of the standard library that fits the suffix of `path`; `plain` for any other."""
    return _OPENERS.get(os.path.splitext(path)[1].lower(), plain)


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary file to write; it takes the place of `path` when the block ends well.

    Makes the folder of `path`. UsageError if `path` is there and no regular file, RunError if it
    cannot be written (a full disk, no permission); both leave it as it was.
    """
    with _beside(path, "new") as (target, temporary):
        if target.exists() and not target.is_file():
            raise UsageError(f"{path} is a folder or a device; give the name of a file")
        yield temporary
        os.replace(temporary, target)


@contextlib.contextmanager
def replacing_folder(path: str | Path, mark: str) -> Iterator[Path]:
    """A temporary folder to fill; it takes the place of `path` when the block ends well.

    mark: the file by which a folder that may be replaced is known. UsageError for any other folder
    that is not empty and for a file, RunError if the folder cannot be written; both leave it as it
    was.
    """
    with _beside(path, "new") as (target, temporary), _beside(path, "old") as (_, former):
        if target.exists() and not target.is_dir():
            raise UsageError(f"{path} is a file; give a new or empty folder")
        if target.exists() and any(target.iterdir()) and not (target / mark).is_file():
            raise UsageError(f"{path} holds other files (no {mark}); give a new or empty folder")
        temporary.mkdir()
        yield temporary
        if not target.exists():
            os.replace(temporary, target)
            return
        os.replace(target, former)  # a folder cannot be renamed onto one with content
        try:
            os.replace(temporary, target)
        except BaseException:
            os.replace(former, target)
            raise


def sweep(path: str | Path) -> None:
    """Removes what killed writers of `path` left beside it; its last name may be a glob.

    For the only writer of `path`: what another one is writing at this moment goes too.
    """
    path = Path(path)
    for leftover in path.parent.glob(f".{path.name}.new-*"):
        _remove(leftover)


def synchronise(folder: Path) -> None:
    """Has the system write a folder and all that is in it, but hidden things, to the disk.

    What is not yet written is lost when the machine loses its power.
    """
    for path in (*(p for p in folder.rglob("*") if not p.name.startswith(".")), folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def _beside(path: str | Path, purpose: str) -> Iterator[tuple[Path, Path]]:
    """What `path` stands for, and a free name in its folder, which is made.

    What has that name afterwards is removed. An OSError within becomes a RunError naming `path`.
    """
    target = Path(os.path.realpath(path))  # a link stays a link
    temporary = target.parent / f".{target.name}.{purpose}-{secrets.token_hex(4)}"
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
