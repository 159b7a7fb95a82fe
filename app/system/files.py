"""Files that appear whole or not at all; files that are compressed by the look of their name."""

from __future__ import annotations

import bz2
import contextlib
import errno
import gzip
import lzma
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from ..errors import RunError, UsageError

_OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # of UTF-8, which some editors write at the start of a file
# Bytes of a line of a list that a person gives: more than any has, and little beside the memory.
LONGEST_LINE = 1 << 20


def opener(path: str | Path, plain: Callable = open) -> Callable:
    """The `open` of the standard library that fits the suffix of `path`; `plain` for any other."""
    return _OPENERS.get(os.path.splitext(path)[1].lower(), plain)


def open_regular(path: str | Path) -> BinaryIO:
    """Open a regular file to read its bytes, without waiting for the other end of a pipe.

    Raises:
        OSError: the file cannot be opened, or is a pipe, a device or a folder.
    """
    # Without O_NONBLOCK the opening of a pipe waits until somebody writes to it.
    reason = "it is a pipe, a folder or a device, not a regular file"
    return _open(path, os.O_NONBLOCK, (stat.S_IFREG,), reason)


def open_stream(path: str | Path) -> BinaryIO:
    """Open a regular file or a pipe to read its bytes.

    Raises:
        OSError: the file cannot be opened, or is a folder or a device, which may have no end.
    """
    reason = "it is a folder or a device, not a file or a pipe"
    return _open(path, 0, (stat.S_IFREG, stat.S_IFIFO), reason)


def _open(path: str | Path, flags: int, kinds: tuple[int, ...], reason: str) -> BinaryIO:
    descriptor = os.open(path, os.O_RDONLY | flags)
    if stat.S_IFMT(os.fstat(descriptor).st_mode) not in kinds:
        os.close(descriptor)
        raise OSError(errno.EINVAL, reason)
    return os.fdopen(descriptor, "rb")


def read_lines(
    path: str | Path, wanted: str, longest: int = LONGEST_LINE
) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file or a pipe, without a byte-order mark, each with its number.

    Args:
        path: a file, not decompressed.
        wanted: the content that the file should have, for messages.
        longest: the bytes that a line may have.

    Raises:
        UsageError: the file cannot be read, is a device, or has a longer line.
    """
    try:
        with open_stream(path) as file:
            yield from bounded_lines(file, path, wanted, longest)
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}; give a file of {wanted}"
        ) from error


def bounded_lines(
    file: BinaryIO, name: str | Path, wanted: str, longest: int = LONGEST_LINE
) -> Iterator[tuple[int, bytes]]:
    """Yield what `read_lines` does, of a file that is open.

    Args:
        file: the open file.
        name: the name of the file, for messages.
        wanted: the content that the file should have, for messages.
        longest: the bytes that a line may have.

    Raises:
        UsageError: a line is longer.
    """
    number = 0
    while line := file.readline(longest + 1):
        number += 1
        if len(line) > longest:
            raise UsageError(
                f"{name}, line {number}: longer than {longest:,} bytes; give a file of {wanted}"
            )
        yield number, line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line


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
