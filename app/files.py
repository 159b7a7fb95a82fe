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
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from app.errors import DamagedError, RunError, UsageError

COUNT = range(2**63)  # the shape of a number that int64 holds and that is not below 0
_JSON_BYTES = 64 << 20  # no JSON file of a workdir comes near it
_REMEDY = "put back a copy of it, or train in a new workdir"

_OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # of UTF-8, which some editors write at the start of a file
# Bytes of a line of a list that a person gives: more than any has, and little beside the memory.
LONGEST_LINE = 1 << 20


def opener(path: str | Path, plain: Callable = open) -> Callable:
    """The `open` of the standard library that fits the suffix of `path`; `plain` for any other."""
    return _OPENERS.get(os.path.splitext(path)[1].lower(), plain)


def read_json(path: str | Path, shape: Any, optional: bool = False) -> Any:
    """Read a JSON file and check its value.

    Args:
        path: The file.
        shape: What the value must be, see `fits`.
        optional: Whether there may be no file; the value is None then.

    Returns:
        The value.

    Raises:
        DamagedError: The file is missing, or it holds no such value.
        RunError: The file cannot be read.
    """
    data = _content(path, _JSON_BYTES)
    if data is None:
        if optional:
            return None
        raise missing(path)
    try:
        value = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise damaged(path, str(error)) from error
    if isinstance(shape, dict) and isinstance(value, dict):
        for name, part in shape.items():
            if name is not str and not fits(value.get(name), part):
                raise damaged(path, f"its {name!r} is {str(value.get(name))[:40]!r}")
    if not fits(value, shape):
        raise damaged(path, f"it holds {str(value)[:40]!r}")
    return value


def fits(value: Any, shape: Any) -> bool:
    """Return whether a value from a JSON file has a shape.

    Args:
        value: The value.
        shape: A type; a range of integers or a frozen set of strings, of which the value must be
            one; None for null; a tuple of shapes, one of which must fit; a list with the shapes of
            the items, or with one shape of all of them; a dictionary from names to the shapes of
            their fields, in which a field that is absent counts as null, and `str` stands for every
            name.
    """
    if isinstance(shape, tuple):
        return any(fits(value, one) for one in shape)
    if isinstance(shape, list):
        if type(value) is not list:
            return False
        shapes = shape if len(shape) > 1 else shape * len(value)
        return len(value) == len(shapes) and all(map(fits, value, shapes))
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return False
        if str in shape:
            return all(fits(item, shape[str]) for item in value.values())
        return all(fits(value.get(name), part) for name, part in shape.items())
    if isinstance(shape, range):
        return type(value) is int and value in shape
    if isinstance(shape, frozenset):
        return type(value) is str and value in shape
    if shape is float:  # an integer that no float holds would fail later
        return type(value) is float or (type(value) is int and abs(value) in COUNT)
    return value is None if shape is None else type(value) is shape


def read_bytes(path: str | Path) -> bytes:
    """Read a whole file of a workdir.

    Raises:
        DamagedError: There is no such file.
        RunError: The file cannot be read.
    """
    data = _content(path)
    if data is None:
        raise missing(path)
    return data


def missing(path: str | Path) -> DamagedError:
    """Return the error for a file that a workdir or a checkpoint lacks."""
    return DamagedError(f"{path} is missing; {_REMEDY}")


def damaged(path: str | Path, reason: str) -> DamagedError:
    """Return the error for a file that fails its own check.

    Args:
        path: The file.
        reason: What is wrong with it.
    """
    return DamagedError(f"{path} is damaged: {reason}; {_REMEDY}")


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
            number = 0
            while line := file.readline(longest + 1):
                number += 1
                if len(line) > longest:
                    raise UsageError(
                        f"{path}, line {number}: longer than {longest:,} bytes; give a file of "
                        f"{wanted}"
                    )
                yield number, line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}; give a file of {wanted}"
        ) from error


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
            raise missing(found) from error
        reason = error.strerror or error
        raise RunError(f"cannot read {found}: {reason}; mend that and run this again") from error


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


def _content(path: str | Path, limit: int | None = None) -> bytes | None:
    """Return the bytes of a file, or None where there is none.

    Raises:
        DamagedError: The file is longer than the limit.
        RunError: The file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(-1 if limit is None else limit + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        reason = error.strerror or error
        raise RunError(f"cannot read {path}: {reason}; mend that and run this again") from error
    if limit is not None and len(data) > limit:
        raise damaged(path, f"it is longer than {limit:,} bytes")
    return data


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
