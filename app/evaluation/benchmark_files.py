"""Read a benchmark file line by line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..errors import UsageError
from ..system.files import read_lines


def numbered_lines(path: str | Path, format_text: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the stripped text of each line, but skip empty lines and `#` comments.

    Args:
        path: The file.
        format_text: A description of the file's format, for messages.

    Yields:
        The line number, from 1, and the text.

    Raises:
        UsageError: The file cannot be read, or is not UTF-8.
    """
    try:
        for number, line in read_lines(path, format_text):
            text = line.decode().strip()
            if text and not text.startswith("#"):
                yield number, text
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 text; convert it: a file of {format_text}") from error
