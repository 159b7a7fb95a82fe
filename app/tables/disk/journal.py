"""The journal of a file of rows: the old content of rows that were overwritten."""

from __future__ import annotations

import contextlib
import glob
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...errors import RunError
from ...system.checked_files import COUNT, damaged, missing, read_json
from ...system.files import fsync, remedy
from .sections import Header

SNAPSHOT = "file.json"  # names the file and the generation that a snapshot begins

# A record begins with the checksum of its rest, the section, the number of rows, and the bytes of a
# row. The ids, int64, and the rows follow.
_CHECK = struct.Struct("<I")
_HEAD = struct.Struct("<IQQ")


class Record(NamedTuple):
    """The old content of some rows.

    Attributes:
        ids_U: The ids of the rows, (U,) int64.
    """

    section: int
    ids_U: np.ndarray
    rows_U: np.ndarray
    end: int


class Journal:
    """A file to append records to.

    Args:
        end: The number of bytes to keep; all bytes after them are removed at once.
    """

    def __init__(self, path: Path, end: int = 0):
        self._path, self._end = path, end
        with write_errors(path), path.open("ab") as file:
            file.truncate(end)
        fsync(path.parent)  # records are flushed, but not the name of a new file

    def append(self, section: int, ids_U: np.ndarray, rows_U: np.ndarray) -> None:
        """Append a record, and wait until the disk has it.

        Raises:
            RunError: The record cannot be written, and the file has no part of it; or another
                program changed or removed the file, so that no checkpoint could be restored.
        """
        ids = np.ascontiguousarray(ids_U, np.int64).view(np.uint8)
        rows = np.ascontiguousarray(rows_U).view(np.uint8)
        head = _HEAD.pack(section, len(ids_U), rows_U.itemsize)
        check = _CHECK.pack(zlib.crc32(rows, zlib.crc32(ids, zlib.crc32(head))))
        with write_errors(self._path), open(self._path, "r+b", buffering=0) as file:
            if file.seek(0, os.SEEK_END) != self._end:
                raise RunError(
                    f"{self._path} was changed by another program; run again to go on from the "
                    "newest checkpoint that is whole"
                )
            try:
                for part in (check + head, ids, rows):
                    _write(file.fileno(), memoryview(part))
                os.fdatasync(file.fileno())
            except OSError:
                file.truncate(self._end)  # later records must not follow a part of one
                raise
            self._end = file.tell()


def records(path: Path, header: Header | None = None) -> Iterator[Record]:
    """Read the records of a journal one by one; the file is opened when the first is asked for.

    A last record that is incomplete or damaged is left out: `append` did not return, so its rows
    were not overwritten.

    Args:
        header: The header of the file, which must have the rows of the records; None for no check.

    Raises:
        DamagedError: A record before the last is damaged, or has rows that the file has not.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        end = 0
        while size - end >= _CHECK.size + _HEAD.size:
            check, head = file.read(_CHECK.size), file.read(_HEAD.size)
            section, count, row_bytes = _HEAD.unpack(head)
            length = count * (row_bytes + np.dtype(np.int64).itemsize)
            end += _CHECK.size + _HEAD.size + length
            if end > size:
                return
            content = file.read(length)
            if _CHECK.unpack(check)[0] != zlib.crc32(content, zlib.crc32(head)):
                if end == size:
                    return
                raise damaged(path, f"a record that ends {size - end} bytes before its end")
            ids_U = np.frombuffer(content, np.int64, count)
            if header and not _has_rows(header, section, row_bytes, ids_U):
                raise damaged(path, f"a record of rows that its section {section} has not")
            yield Record(
                section, ids_U, np.frombuffer(content, f"V{row_bytes}", count, ids_U.nbytes), end
            )


def _has_rows(header: Header, number: int, row_bytes: int, ids_U: np.ndarray) -> bool:
    """Return whether a file has a section of this number, with rows of these ids and bytes."""
    if number >= len(header.sections):
        return False
    section = header.sections[number]
    are_ids = not len(ids_U) or 0 <= ids_U.min() <= ids_U.max() < section.rows
    return bool(are_ids and row_bytes == section.row_bytes)


def journal_path(path: Path, generation: int) -> Path:
    """Return the path of the journal of a generation, whether or not there is one."""
    return path.with_name(f"{path.name}.undo-{generation}")


def list_journals(path: Path, first: int = 0) -> dict[int, Path]:
    """Return the paths of the journals that a file has, by generation, newest first.

    Args:
        first: The oldest generation to return.
    """
    prefix = f"{path.name}.undo-"
    files = path.parent.glob(f"{glob.escape(prefix)}*")
    suffixes = (other.name.removeprefix(prefix) for other in files)
    generations = {int(suffix) for suffix in suffixes if suffix.isdecimal()}
    return {n: journal_path(path, n) for n in sorted(generations, reverse=True) if n >= first}


def list_journals_to_undo(path: Path, generation: int) -> dict[int, Path]:
    """Return the journals to undo to get back to the beginning of a generation, newest first.

    These are the journals of this generation and of all later ones. There is none if the run was
    killed before the generation began; then the journal of the generation before must be there.

    Raises:
        DamagedError: One of the journals is missing.
    """
    newer = list_journals(path, generation)
    last = next(iter(newer), generation - 1)
    is_complete = list(newer) == list(range(last, generation - 1, -1))
    if not is_complete or (not newer and not journal_path(path, last).exists()):
        raise missing(f"{journal_path(path, generation)} or a later one")
    return newer


@contextlib.contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Convert an OSError in the block to a RunError that names the file and the remedy."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"cannot write {path}: {error.strerror or error}; {remedy(error)} and run again, with "
            "the same --table_file: it goes on from the newest checkpoint"
        ) from error


def _write(descriptor: int, part: memoryview) -> None:
    """Write a whole buffer to a file descriptor: the system writes at most 2 GB in a call."""
    while part:
        part = part[os.write(descriptor, part) :]


def generation_of(folder: Path, header: Header) -> int:
    """Return the number of the generation that begins at a snapshot.

    Raises:
        DamagedError: The snapshot is damaged or missing.
        RunError: It is a snapshot of another file.
    """
    held = read_json(folder / SNAPSHOT, {"identity": str, "generation": COUNT})
    if held["identity"] != header.identity:
        raise RunError(
            f"{folder} is of another file than the one given as --table_file; give that file"
        )
    return held["generation"]
