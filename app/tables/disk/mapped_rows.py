"""The rows of a section, mapped into memory, and read and written by several threads."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from .sections import Section

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

    Args:
        path: The file.
        section: The section to map.

    Attributes:
        rows_V: The rows as items of bytes (V,), in the file itself.
    """

    def __init__(self, path: Path, section: Section):
        with open(path, "r+b") as file:
            self._map = mmap.mmap(
                file.fileno(), section.end - section.offset, offset=section.offset
            )
        self._map.madvise(mmap.MADV_RANDOM)
        self.rows_V = np.frombuffer(self._map, f"V{section.row_bytes}", section.rows)

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
            rows_U: New rows as items of bytes, (U,).
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
