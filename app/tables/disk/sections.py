"""The layout of a file of rows: a header, then sections of rows, each mapped into memory."""

from __future__ import annotations

import dataclasses
import errno
import json
import mmap
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf

from ...errors import RunError
from ...system.checked_files import fits
from ..initial import Initial, initial_rows

_MAGIC = b"lexrow rows 1\n"
_ALIGNMENT = 4096  # of sections: a page, which is what can be mapped
_HEADER_BYTES = 16 * _ALIGNMENT  # room for hundreds of sections
_PART_BYTES = 16 << 20  # read at a time, where all rows have to be
_DTYPES = frozenset(["float32", "float16", "bfloat16"])
_SECTION = {
    "name": str,
    "rows": range(1, 2**62),
    "columns": range(1, 2**31),
    "dtype": _DTYPES,
    "offset": range(_HEADER_BYTES, 2**62, _ALIGNMENT),
}
_HEADER = {"owner": str, "identity": str, "sections": [_SECTION]}


@dataclasses.dataclass(frozen=True)
class Section:
    """V rows of D columns of a dtype, from an offset in bytes on."""

    name: str
    rows: int
    columns: int
    dtype: str
    offset: int

    @property
    def bytes(self) -> int:
        """Those of all rows."""
        return self.rows * self.row_bytes

    @property
    def end(self) -> int:
        """Where another section may begin."""
        return -(-(self.offset + self.bytes) // _ALIGNMENT) * _ALIGNMENT

    @property
    def row_bytes(self) -> int:
        """Those of one row."""
        return self.columns * tf.as_dtype(self.dtype).size

    @property
    def layout(self) -> str:
        """In words."""
        return f"{self.rows:,} x {self.columns:,} {self.dtype}"

    def items(self, rows_UD: np.ndarray) -> np.ndarray:
        """Rows of numbers, (U, D) of any dtype, as rows of bytes, (U,), rounded to the nearest."""
        numbers_UD = np.ascontiguousarray(rows_UD, tf.as_dtype(self.dtype).as_numpy_dtype)
        return numbers_UD.view(f"V{self.row_bytes}").reshape(-1)

    def numbers(self, rows_U: np.ndarray) -> np.ndarray:
        """Rows of bytes, (U,), as numbers of the dtype, (U, D)."""
        return rows_U.view(tf.as_dtype(self.dtype).as_numpy_dtype).reshape(-1, self.columns)

    def parts(self, path: Path) -> Iterator[np.ndarray]:
        """The rows as the file holds them now, (any number, D) of the dtype, part by part.

        The system is told not to read ahead, as it would keep large blocks: see `Mapping`.
        """
        count = max(1, _PART_BYTES // self.row_bytes)
        with open(path, "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            for start in range(0, self.rows, count):
                length = min(count, self.rows - start) * self.row_bytes
                part = os.pread(file.fileno(), length, self.offset + start * self.row_bytes)
                if len(part) < length:
                    raise RunError(f"{path} was cut short while it was read; put back a copy of it")
                yield self.numbers(np.frombuffer(part, f"V{self.row_bytes}"))


@dataclasses.dataclass(frozen=True)
class Header:
    """What a file says of itself.

    owner: whose it is. identity: which file it is, of all that were ever made. sections: those that
    are whole.
    """

    owner: str
    identity: str
    sections: tuple[Section, ...] = ()

    @property
    def end(self) -> int:
        """Bytes of the file; where another section may begin."""
        return self.sections[-1].end if self.sections else _HEADER_BYTES

    def find(self, name: str) -> Section | None:
        """The section of that name, if there is one."""
        return next((section for section in self.sections if section.name == name), None)

    def write(self, path: Path) -> None:
        """Replaces the header of a file, or makes a file that has no more."""
        text = _MAGIC + json.dumps(dataclasses.asdict(self)).encode()
        assert len(text) <= _HEADER_BYTES
        with open(path, "r+b" if path.exists() else "xb") as file:
            file.write(text.ljust(_HEADER_BYTES, b"\0"))


def read_header(path: Path) -> Header:
    """The header of a file. ValueError, which says what the file is, if it is none of rows."""
    with open(path, "rb") as file:
        text = file.read(_HEADER_BYTES)
        size = os.fstat(file.fileno()).st_size
    if not text.startswith(_MAGIC):
        raise ValueError("is no file of rows")
    if len(text) == _HEADER_BYTES:
        header = _parse(text[len(_MAGIC) :].rstrip(b"\0"))
        if size >= header.end:
            return header
    raise ValueError("is truncated")


def _parse(text: bytes) -> Header:
    """Return the header that the text stands for, or raise ValueError."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError("is damaged: its header is no JSON") from error
    if not fits(fields, _HEADER):
        raise ValueError("is damaged: its header lacks a field, or has a wrong one")
    sections = [Section(**{n: held[n] for n in _SECTION}) for held in fields["sections"]]
    ends = [_HEADER_BYTES, *(section.end for section in sections)]
    if any(section.offset != end for section, end in zip(sections, ends[:-1], strict=True)):
        raise ValueError("is damaged: its sections are not one after the other")
    return Header(fields["owner"], fields["identity"], tuple(sections))


def reserve(path: Path, section: Section) -> None:
    """Takes the section's place on the disk, so that writing there cannot fill it.

    OSError if there is no room; asked first, as the system would fill the disk before it says so.
    """
    length = section.end - section.offset
    if shutil.disk_usage(path).free < length:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with open(path, "r+b") as file:
        os.posix_fallocate(file.fileno(), section.offset, length)


class Mapping:
    """The rows of a section, (V,) items of bytes, in the file itself.

    The file is mapped as one that is read here and there. Otherwise Linux reads 128 kB around each
    row, and keeps them in blocks that it takes for changed as a whole: random rows of 1,200 bytes
    were then written at 30 MB/s instead of 2,000, because it waits for the disk.
    """

    def __init__(self, path: Path, section: Section):
        with open(path, "r+b") as file:
            self._map = mmap.mmap(
                file.fileno(), section.end - section.offset, offset=section.offset
            )
        self._map.madvise(mmap.MADV_RANDOM)
        self.rows_V = np.frombuffer(self._map, f"V{section.row_bytes}", section.rows)

    def file_size(self) -> int:
        """Return how many bytes the file has now."""
        return self._map.size()

    def flush(self) -> None:
        """Returns when the disk has what was written."""
        self._map.flush()


def fill(rows_V: np.ndarray, section: Section, initial: Initial) -> None:
    """Make initial rows, part by part if `initial` can."""
    shape = section.rows, section.columns
    by_row = hasattr(initial, "rows")
    count = max(1, _PART_BYTES // section.row_bytes) if by_row else section.rows
    # XLA makes one loop of it, many times as fast as its operations one by one.
    make = tf.function(
        lambda ids_U: tf.cast(initial_rows(initial, ids_U, shape), section.dtype),
        autograph=False,
        jit_compile=by_row,
    )
    for start in range(0, section.rows, count):
        ids_U = tf.range(start, min(start + count, section.rows), dtype=tf.int64)
        rows_UD = make.get_concrete_function(ids_U)(ids_U)
        rows_V[start : start + count] = section.items(rows_UD.numpy())


def unreadable(error: OSError | ValueError) -> str:
    """What the path of a file is, of which `read_header` raised this."""
    if isinstance(error, FileNotFoundError):
        return "is not there"
    return f"cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)
