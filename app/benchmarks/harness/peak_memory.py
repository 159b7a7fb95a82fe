"""The peak memory of a block of code."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from ...system import host_memory
from .machine import watching

SAMPLE_SECONDS = 0.02  # between two readings of the resident memory


@contextlib.contextmanager
def peak_without_files() -> Iterator[Callable[[], int]]:
    """Watch the memory of this process, without mapped files, until the end of the block.

    A thread reads the memory every 0.02 s.

    Yields:
        A function that returns the most memory so far, in bytes.
    """
    most = host_memory.resident_bytes()

    def look() -> None:
        nonlocal most
        most = max(most, host_memory.resident_bytes())

    with watching(look, SAMPLE_SECONDS):
        yield lambda: most
