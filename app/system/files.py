"""Files that are replaced as a whole or not at all, and compressed files."""

from __future__ import annotations

import bz2
import contextlib
import errno
import gzip
import hashlib
import lzma
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, BinaryIO

from ..errors import RunError, UsageError

_OPENERS: dict[str, Callable] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # of UTF-8, which some editors write at the start of a file
# The longest line of a list that a user gives, in bytes: more than any real line has.
LONGEST_LINE = 1 << 20
_HASHED_BYTES = 1 << 20  # at a time
_REMEDIES = {
    errno.ENOSPC: "free the disk",
    errno.EDQUOT: "free the disk",
    errno.EACCES: "let this user write there",
    errno.EPERM: "let this user write there",
    errno.EROFS: "make it writable",
    errno.EFBIG: "raise the limit of the size of a file (ulimit -f)",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENAMETOOLONG: "shorten the name",
    errno.ENOMEM: "end other programs",
}


def remedy(error: OSError) -> str:
    """Return what a person can do about a file that cannot be written, as a clause."""
    return _REMEDIES.get(error.errno or 0, "mend that")


def allocate(file: IO, offset: int, size: int) -> None:
    """Take space on the disk for a part of a file, so that later writes to it cannot fail.

    Raises:
        OSError: The disk, a quota or a limit of the process is too small. The disk is checked
            first: the system would otherwise fill it before it fails.
    """
    if shutil.disk_usage(file.fileno()).free < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.posix_fallocate(file.fileno(), offset, size)


def system_error(message: str) -> OSError:
    """Return the error of the system that a message of TensorFlow is about.

    Args:
        message: The message. Its first line is such as `{{function_node __wrapped__SaveV2...}}
            PATH; No space left on device [Op:SaveV2]`.

    Returns:
        The error, with the reason alone; without a number if the message names no such error.
    """
    line = re.sub(r"\{\{.*?\}\}|\[Op:\w+\]", "", (message.splitlines() or [""])[0]).strip()
    known = {os.strerror(number): number for number in errno.errorcode}
    named = max((text for text in known if text in line), key=len, default="")
    return OSError(known.get(named), named or line.rpartition("; ")[2])


def check_path(path: Any, name: str = "path") -> str:
    """Return the path that a program gives as an argument, as text.

    Raises:
        TypeError: It is no path.
        ValueError: It is empty.
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"{name} is {type(path).__name__}; give the path of a file or folder")
    if not os.fspath(path):
        raise ValueError(f"{name} is empty; give the path of a file or folder")
    return os.fspath(path)


def hash_file(file: IO[bytes]) -> str:
    """Return the SHA-256 of the rest of an open file, in hexadecimal digits."""
    digest = hashlib.sha256()
    for block in iter(lambda: file.read(_HASHED_BYTES), b""):
        digest.update(block)
    return digest.hexdigest()


def opener(path: str | Path) -> Callable:
    """Return `gzip.open`, `bz2.open` or `lzma.open` for a name in .gz, .bz2 or .xz, else `open`.

    Args:
        path: The file. It is not opened, and letter case is ignored.
    """
    return _OPENERS.get(os.path.splitext(path)[1].lower(), open)


def open_regular(path: str | Path) -> BinaryIO:
    """Open a regular file to read its bytes, without waiting for the other end of a pipe.

    Raises:
        OSError: The file cannot be opened, or is a pipe, a device or a folder.
    """
    # Without O_NONBLOCK, to open a pipe waits until another process writes to it.
    reason = "it is a pipe, a folder or a device, not a regular file"
    return _open(path, os.O_NONBLOCK, (stat.S_IFREG,), reason)


def open_stream(path: str | Path) -> BufferedReader:
    """Open a regular file or a pipe to read its bytes.

    Raises:
        OSError: The file cannot be opened, or is a folder or a device, which may have no end.
    """
    reason = "it is a folder or a device, not a file or a pipe"
    return _open(path, 0, (stat.S_IFREG, stat.S_IFIFO), reason)


def _open(path: str | Path, flags: int, kinds: tuple[int, ...], reason: str) -> BufferedReader:
    """Open a file to read its bytes; raise an OSError with the reason if it is of another kind.

    `flags` are added to those of `os.open`, and `kinds` are the allowed S_IF constants.
    """
    descriptor = os.open(path, os.O_RDONLY | flags)
    if stat.S_IFMT(os.fstat(descriptor).st_mode) not in kinds:
        os.close(descriptor)
        raise OSError(errno.EINVAL, reason)
    return os.fdopen(descriptor, "rb")


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield the path of a temporary file, which replaces `path` if the block succeeds.

    The block must write the temporary file, which does not exist yet. The folder of `path` is made.
    The disk has the whole new file before the old one is removed. If `path` is a link, its target
    is replaced.

    Args:
        path: The file to make or to replace. It is unchanged if there is an error.

    Raises:
        UsageError: `path` is not a regular file, or is below a file.
        RunError: The file cannot be written (a full disk, no permission), or the block raises
            another OSError.
    """
    with _beside(path, "new") as (target, temporary):
        if target.exists() and not target.is_file():
            raise UsageError(f"{path} is a folder or a device; give the name of a file")
        yield temporary
        fsync(temporary)
        os.replace(temporary, target)
        fsync(target.parent)


@contextlib.contextmanager
def replacing_folder(path: str | Path, mark: str) -> Iterator[Path]:
    """Yield the path of a new empty folder, which replaces `path` if the block succeeds.

    The disk has the whole new folder before the old one is removed. Missing parents are made. If
    `path` is a link, its target is replaced.

    Args:
        path: The folder to make or to replace. It is unchanged if there is an error.
        mark: The name of a file. Only a folder that has this file, or is empty, is replaced.

    Raises:
        UsageError: `path` is a file, is below one, or is a folder with other content.
        RunError: The folder cannot be written, or the block raises another OSError.
    """
    with _beside(path, "new") as (target, temporary), _beside(path, "old") as (_, former):
        if target.exists() and not target.is_dir():
            raise UsageError(f"{path} is a file; give a new or empty folder")
        if target.exists() and any(target.iterdir()) and not (target / mark).is_file():
            raise UsageError(f"{path} holds other files (no {mark}); give a new or empty folder")
        temporary.mkdir()
        yield temporary
        for part in (*temporary.rglob("*"), temporary):
            fsync(part)
        if target.exists():  # a folder cannot be renamed onto one with content
            os.replace(target, former)
        try:
            os.replace(temporary, target)
        except BaseException:
            if former.exists():
                os.replace(former, target)
            raise
        fsync(target.parent)


def remove_folder(path: Path) -> None:
    """Remove a folder so that a reader sees it as a whole or not at all. Ignore errors."""
    hidden = _hidden_name(path, "gone")
    with contextlib.suppress(OSError):
        os.replace(path, hidden)
    _remove(hidden)


def sweep(path: str | Path) -> None:
    """Remove temporary files and folders that killed processes left beside a path.

    A former folder that `replacing_folder` has put aside is not removed. Only the sole writer of
    the path may call this: it removes files that are being written, too. Errors are ignored.

    Args:
        path: The path, whose last part may be a glob pattern.
    """
    path = Path(path)
    for purpose in ("new", "gone"):
        for leftover in path.parent.glob(f".{path.name}.{purpose}-*"):
            _remove(leftover)


def fsync(path: Path) -> None:
    """Wait until the disk has a file, or the entries of a folder, so that they survive a crash."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # from file systems that cannot do this for a folder
            raise
    finally:
        os.close(descriptor)


def _hidden_name(path: Path, purpose: str) -> Path:
    """Return a random hidden path beside a path. `sweep` removes files of purpose new or gone."""
    return path.parent / f".{path.name}.{purpose}-{secrets.token_hex(4)}"


@contextlib.contextmanager
def _beside(path: str | Path, purpose: str) -> Iterator[tuple[Path, Path]]:
    """Make the folder of a path, and yield the path without links and an unused path beside it.

    A file or folder at the second path is removed at the end. An OSError in the block becomes a
    RunError. Raise UsageError if the folder would be below a file.
    """
    target = Path(os.path.realpath(path))  # the target of a link, so that the link stays
    temporary = _hidden_name(target, purpose)
    try:
        _make_parent(path, target)
        yield target, temporary
    except OSError as error:
        reason = error.strerror or error
        raise RunError(
            f"cannot write {path}: {reason}; {remedy(error)} or choose another folder"
        ) from error
    finally:
        _remove(temporary)


def _make_parent(path: str | Path, target: Path) -> None:
    """Make the folder of `target`; raise UsageError about `path` if a parent is a file."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        file = next(parent for parent in target.parents if parent.exists())
        raise UsageError(
            f"cannot write {path}: {file} is a file, not a folder; choose another folder"
        ) from error


def _remove(path: Path) -> None:
    """Remove a file or a folder. Ignore errors."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
