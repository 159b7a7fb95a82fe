"""The format of a file of rows: a header, then sections of rows, each mapped into memory."""

from __future__ import annotations

import dataclasses
import json
import mmap
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import tensorflow as tf

from ...errors import RunError, UsageError
from ...system.checked_files import fits
from ...system.files import allocate
from ..arrays import row_slices
from ..initial import Initial, compiled_rows

_MAGIC = b"lexrow rows 1\n"
_ALIGNMENT = 4096  # sections begin at a page of memory, so that they can be mapped
_HEADER_BYTES = 16 * _ALIGNMENT  # enough for hundreds of sections
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
    """The place of a table in the file.

    Attributes:
        offset: The position of the first row in the file, in bytes.
    """

    name: str
    rows: int
    columns: int
    dtype: str
    offset: int

    @property
    def bytes(self) -> int:
        """The size of all rows in bytes."""
        return self.rows * self.row_bytes

    @property
    def end(self) -> int:
        """The position in the file where the next section can begin."""
        return -(-(self.offset + self.bytes) // _ALIGNMENT) * _ALIGNMENT

    @property
    def row_bytes(self) -> int:
        """The size of a row in bytes."""
        return self.columns * tf.as_dtype(self.dtype).size

    @property
    def layout(self) -> str:
        """The shape and the dtype, for messages."""
        return f"{self.rows:,} x {self.columns:,} {self.dtype}"

    def items(self, rows_UD: np.ndarray) -> np.ndarray:
        """Return rows of numbers as items of bytes, rounded to the nearest number of the dtype."""
        numbers_UD = np.ascontiguousarray(rows_UD, tf.as_dtype(self.dtype).as_numpy_dtype)
        return numbers_UD.view(f"V{self.row_bytes}").reshape(-1)

    def numbers(self, rows_U: np.ndarray) -> np.ndarray:
        """Return items of bytes as rows of numbers, without a copy."""
        return rows_U.view(tf.as_dtype(self.dtype).as_numpy_dtype).reshape(-1, self.columns)

    def parts(self, path: Path) -> Iterator[np.ndarray]:
        """Read all rows in order, in parts of about 16 MB, each as the file holds it at that time.

        The system is asked not to read ahead: it would keep large blocks (see `MappedRows`).

        Yields:
            Parts (any number, D) of the dtype of the section.

        Raises:
            RunError: The file was cut short.
        """
        with open(path, "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            for rows in row_slices(self.rows, self.columns):
                length = (rows.stop - rows.start) * self.row_bytes
                part = os.pread(file.fileno(), length, self.offset + rows.start * self.row_bytes)
                if len(part) < length:
                    raise RunError(f"{path} was cut short while it was read; put back a copy of it")
                yield self.numbers(np.frombuffer(part, f"V{self.row_bytes}"))

    def mapped(self, path: Path) -> np.memmap:
        """Return all rows as items of bytes (V,), mapped from the file, not read.

        The array can be written, which changes the file.
        """
        # A mapping that is private or read-only would not do: the system refuses a private one
        # that is larger than the memory, and TensorFlow takes no array that is read-only.
        return np.memmap(path, f"V{self.row_bytes}", "r+", self.offset, (self.rows,))


@dataclasses.dataclass(frozen=True)
class Header:
    """The header of a file of rows.

    Attributes:
        owner: The id of the run that the file belongs to.
        identity: A random text that no other file has.
        sections: The sections, all of them completely written.
    """

    owner: str
    identity: str
    sections: tuple[Section, ...] = ()

    @property
    def end(self) -> int:
        """The size of the file in bytes, where the next section can begin."""
        return self.sections[-1].end if self.sections else _HEADER_BYTES

    def find(self, name: str) -> Section | None:
        """Return the section of a name, or None if there is none."""
        return next((section for section in self.sections if section.name == name), None)

    def write(self, path: Path) -> None:
        """Replace the header of a file, or make a file that has only a header."""
        text = _MAGIC + json.dumps(dataclasses.asdict(self)).encode()
        assert len(text) <= _HEADER_BYTES
        with open(path, "r+b" if path.exists() else "xb") as file:
            file.write(text.ljust(_HEADER_BYTES, b"\0"))
            file.flush()
            os.fsync(file.fileno())  # a snapshot relies on it


def read_header(path: Path) -> Header:
    """Return the header of a file of rows.

    Raises:
        ValueError: It is not there, is no file of rows, is damaged or is truncated. The message,
            such as "is truncated", is the end of a sentence that begins with the file.
    """
    try:
        with open(path, "rb") as file:
            text = file.read(_HEADER_BYTES)
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError as error:
        raise ValueError("is not there") from error
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from error
    if not text.startswith(_MAGIC):
        raise ValueError("is no file of rows")
    if len(text) == _HEADER_BYTES:
        header = _parse(text[len(_MAGIC) :].rstrip(b"\0"))
        if size >= header.end:
            return header
    raise ValueError("is truncated")


def read_own_header(path: Path, owner: str, resume: bool) -> Header | None:
    """Return the header of a file of this run; None if a new run has no file yet, or an empty one.

    Raises:
        UsageError: The file is missing or truncated, belongs to another run, or holds no rows.
    """
    # A process that was killed before it wrote the header leaves an empty file.
    if not resume and (not path.exists() or (path.is_file() and not path.stat().st_size)):
        return None
    try:
        header = read_header(path)
    except ValueError as error:
        raise UsageError(
            f"--table_file={path} {error}; to go on with a run give its whole file, to "
            "begin one give the name of a new file and a new workdir"
        ) from error
    if header.owner != owner:
        raise UsageError(
            f"--table_file={path} belongs to another run; give that run's --workdir or another file"
        )
    return header


def _parse(text: bytes) -> Header:
    """Return the header in a JSON text, or raise ValueError with a message as of `read_header`."""
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
    """Make a file longer by a section of zeros, allocated on the disk."""
    with open(path, "r+b") as file:
        allocate(file, section.offset, section.end - section.offset)


def fill(rows_V: np.ndarray, section: Section, initial: Initial) -> None:
    """Write the initial rows of a section, by parts if they can be made by id, else as a whole."""
    shape, dtype = (section.rows, section.columns), tf.as_dtype(section.dtype)
    if not hasattr(initial, "rows"):
        rows_V[:] = section.items(tf.cast(initial(shape), dtype).numpy())
        return
    for part in row_slices(*shape):
        ids_U = tf.range(part.start, part.stop, dtype=tf.int64)
        rows_V[part] = section.items(compiled_rows(initial, ids_U, shape[1], dtype).numpy())


# A thread waits for each row that is not in memory: 100,000 random rows of 1,200 bytes took 10 s
# with one thread, 1.5 s with 16 and 1.1 s with 64.
THREADS = 32
_pool = ThreadPoolExecutor(THREADS, "rows")  # of all files; a thread starts when it is needed
_MIN_ROWS = 256  # rows of a thread: fewer are copied in less time than a thread takes to start


class MappedRows:
    """The rows of a section, mapped into memory.

    The system is told that access is random. Otherwise Linux reads 128 kB around each row, in
    blocks that it writes back as a whole: random rows of 1,200 bytes were then written at 30 MB/s
    instead of 2,000.

    Attributes:
        rows_V: The rows as items of bytes (V,), in the file itself.
    """

    def __init__(self, path: Path, section: Section):
        rows_V = section.mapped(path)
        self.rows_V, self._map = np.asarray(rows_V), rows_V._mmap
        self._map.madvise(mmap.MADV_RANDOM)

    def file_size(self) -> int:
        """Return the current size of the file in bytes."""
        return self._map.size()

    def flush(self) -> None:
        """Write all changes to the disk, and wait until it has them."""
        self._map.flush()

    def take(self, ids_U: np.ndarray) -> np.ndarray:
        """Return a copy of rows as items of bytes, (U,).

        Args:
            ids_U: Ids (U,) in range. An id out of range would give the nearest row.
        """
        rows_U = np.empty(len(ids_U), self.rows_V.dtype)

        def take(part: slice) -> None:
            """Copy the rows of a slice of the ids into the result."""
            # The mode "raise" would copy the rows twice.
            np.take(self.rows_V, ids_U[part], out=rows_U[part], mode="clip")

        self._in_parts(len(ids_U), take)
        return rows_U

    def put(self, ids_U: np.ndarray, rows_U: np.ndarray) -> None:
        """Replace rows in the mapped file; the system writes them to the disk later.

        Args:
            ids_U: Unique ids (U,) in range.
        """

        def put(part: slice) -> None:
            """Replace the rows of a slice of the ids."""
            self.rows_V[ids_U[part]] = rows_U[part]

        self._in_parts(len(ids_U), put)

    def _in_parts(self, count: int, act: Callable[[slice], None]) -> None:
        """Call `act` for slices that cover 0 .. count - 1, at once in several threads, and wait.

        Up to `_MIN_ROWS` rows are one slice, in the calling thread.
        """
        size = max(_MIN_ROWS, -(-count // THREADS))
        parts = [slice(start, start + size) for start in range(0, count, size)]
        list((_pool.map if len(parts) > 1 else map)(act, parts))
