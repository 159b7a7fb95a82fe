"""A benchmark of word vectors: the lines of its file, and its score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ..errors import UsageError
from ..system.files import read_lines


class Score(NamedTuple):
    """A score, the number of items behind it, and the protocol of its measurement.

    Attributes:
        name: The name of the benchmark, or the path of its file.
        measure: `spearman` (-1 to 1) or `accuracy` (0 to 1).
        value: The score; None if it is undefined.
        used: The number of items in the score.
        skipped: The number of items with an unknown word, which are not in the score.
        protocol: The rules of the measurement, in one line.
        note: The reason for an undefined score, else empty.
        parts: The scores of the sections of the file.
        words: The number of words of the file, and of those that are unknown; empty for a section.
    """

    name: str
    measure: str
    value: float | None
    used: int
    skipped: int
    protocol: str
    note: str = ""
    parts: tuple[Score, ...] = ()
    words: str = ""


def count_unknown(is_known: Mapping[str, bool]) -> str:
    """Return how many words of a file are unknown, for `Score.words`.

    Args:
        is_known: Whether each word is known.
    """
    unknown = sum(not known for known in is_known.values())
    return f"{unknown:,} of {len(is_known):,} words unknown"


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
