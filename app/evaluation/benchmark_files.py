"""Lines of a benchmark file, each with its number, for messages that name it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..errors import UsageError
from ..system.files import read_lines


def numbered_lines(path: str | Path, wanted: str) -> Iterator[tuple[int, str]]:
    """(line number from 1, stripped text) of every line that is neither empty nor a `#` comment.

    wanted: what the file should hold, for the remedy of a UsageError: a file that cannot be read or
    is not UTF-8.
    """
    try:
        for number, line in read_lines(path, wanted):
            text = line.decode().strip()
            if text and not text.startswith("#"):
                yield number, text
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 text; convert it: a file of {wanted}") from error
