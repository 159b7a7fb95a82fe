"""What rows were before they were overwritten, appended to a file."""

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
from ...system.checked_files import damaged, missing

# The check sum of the rest of the record; then the section, the number of rows and the bytes of
# each. The ids, int64, and the rows follow.
_CHECK = struct.Struct("<I")
_HEAD = struct.Struct("<IQQ")


class Record(NamedTuple):
    """Rows that belong together.

    section: whose rows, as a number. ids_U: int64. rows_U: as many items of bytes. end: where the
    record ends in its file.
    """

    section: int
    ids_U: np.ndarray
    rows_U: np.ndarray
    end: int


class Journal:
    """A file that records are appended to; what is after `end` is cut off.

    RunError if it cannot be made.
    """

    def __init__(self, path: Path, end: int = 0):
        self._path, self._end = path, end
        with telling(path), path.open("ab") as file:
            file.truncate(end)

    def append(self, section: int, ids_U: np.ndarray, rows_U: np.ndarray) -> None:
        """Append a record; the disk has it afterwards.

        Args:
            section: Whose rows, as a number.
            ids_U: The ids, int64.
            rows_U: An item of any type for each.

        Raises:
            RunError: The record cannot be written, and the file has none of it; or the file was
                removed or changed by another program, so that no checkpoint could be restored.
        """
        ids = np.ascontiguousarray(ids_U, np.int64).view(np.uint8)
        rows = np.ascontiguousarray(rows_U).view(np.uint8)
        head = _HEAD.pack(section, len(ids_U), rows_U.itemsize)
        check = _CHECK.pack(zlib.crc32(rows, zlib.crc32(ids, zlib.crc32(head))))
        with telling(self._path), open(self._path, "r+b", buffering=0) as file:
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


def records(path: Path) -> Iterator[Record]:
    """The records of a journal, in the order in which they were appended.

    A last one that is torn is left out: `append` did not return, so its rows were not overwritten.
    DamagedError if one before it is damaged.
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
            yield Record(
                section, ids_U, np.frombuffer(content, f"V{row_bytes}", count, ids_U.nbytes), end
            )


def journal_path(path: Path, generation: int) -> Path:
    """The journal of a file of rows that a generation has."""
    return path.with_name(f"{path.name}.undo-{generation}")


def journals(path: Path, least: int = 0) -> dict[int, Path]:
    """Those of a file by generation, newest first, from the `least` generation on."""
    prefix = f"{path.name}.undo-"
    named = [
        other.name.removeprefix(prefix) for other in path.parent.glob(f"{glob.escape(prefix)}*")
    ]
    found = {int(number) for number in named if number.isdecimal()}
    newest_first = sorted((number for number in found if number >= least), reverse=True)
    return {generation: journal_path(path, generation) for generation in newest_first}


def needed(path: Path, generation: int) -> dict[int, Path]:
    """The journals to undo to come back to the beginning of a generation, newest first.

    None of them if a kill kept that generation from beginning. DamagedError if one is missing.
    """
    newer = journals(path, generation)
    last = next(iter(newer), generation - 1)
    whole = list(newer) == list(range(last, generation - 1, -1))
    if not whole or (not newer and not journal_path(path, last).exists()):
        raise missing(f"{journal_path(path, generation)} or a later one")
    return newer


@contextlib.contextmanager
def telling(path: Path) -> Iterator[None]:
    """An OSError within the block becomes a RunError naming the file that cannot be written."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"cannot write {path}: {error.strerror or error}; free the disk or choose another file"
        ) from error


def _write(descriptor: int, part: memoryview) -> None:
    """Writes all of it; the system writes no more than 2 GB in a call."""
    while part:
        part = part[os.write(descriptor, part) :]
