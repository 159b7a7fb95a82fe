"""Names that may have blanks (labels, users, items): counts, and files that only a run writes.

Tokens of text, which have no white space, are in `text.vocabulary`; a user may write their file.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..errors import UsageError
from ..system.checked_files import COUNT, damaged, read_lines
from ..system.files import LONGEST_LINE, replacing
from .vocabulary import Vocabulary

_WHOLE = re.compile(r"(-?[0-9]+)\.0+")
_COMPARED = 50_000  # names, the most frequent, that are compared with an unknown one in 0.3 s
_COUNT = re.compile(rb"[1-9][0-9]{0,18}")
# Bytes: a tab, a count and a line end follow.
_LONGEST_NAME = LONGEST_LINE - 32


def whole(name: str) -> str:
    """Return a name without the fraction of a whole number: `5800` for `5800.0`.

    Programs write whole numbers so if some of them were missing.
    """
    match = _WHOLE.fullmatch(name) if name.endswith("0") else None
    return match[1] if match else name


def count_names(
    names: Sequence[str], ids_M: np.ndarray, min_count: int = 1, most: int = 0
) -> Vocabulary:
    """Return the names with their counts, by descending count, then by code point.

    Args:
        names: The names; their positions are ids.
        ids_M: The id of each occurrence, (M,) integers.
        min_count: Occurrences that a name needs; with 0, names that never occur stay.
        most: Largest number of names; 0 for all.

    Returns:
        Names with new ids. `total` is M, with the occurrences of dropped names.
    """
    counts_V = np.bincount(ids_M, minlength=len(names))
    ranked = sorted((-int(counts_V[i]), names[i]) for i in np.flatnonzero(counts_V >= min_count))
    ranked = ranked[: most or None]
    counts = np.array([-count for count, _ in ranked], np.int64)
    return Vocabulary([name for _, name in ranked], counts, len(ids_M))


def close_names(name: str, names: Sequence[str]) -> list[str]:
    """Return up to three of the most frequent names that are spelled like another, the best first.

    A number is like no other number.

    Args:
        names: The names, the most frequent first.
    """
    return [] if name.isdigit() else difflib.get_close_matches(name, names[:_COMPARED])


def save(names: Vocabulary, path: Path) -> None:
    """Write a line `name<TAB>count` for each id in order.

    Raises:
        UsageError: A name has a line feed, or is longer than a line may be; any other
            character is kept.
        RunError: The file cannot be written.
    """
    broken = next((name for name in names.tokens if "\n" in name), None)
    if broken is not None:
        raise UsageError(f"{broken!r} has a line break, which {path.name} cannot have; rename it")
    long = next((name for name in names.tokens if len(name.encode()) > _LONGEST_NAME), None)
    if long is not None:
        raise UsageError(
            f"the name that begins with {long[:40]!r} has more than {_LONGEST_NAME:,} bytes, "
            f"which a line of {path.name} cannot; rename it"
        )
    lines = zip(names.tokens, names.counts.tolist(), strict=True)
    with replacing(path) as temporary:
        text = "".join(f"{name}\t{count}\n" for name, count in lines)
        temporary.write_text(text, encoding="utf-8", newline="\n")


def load(path: Path) -> Vocabulary:
    """Read a file that `save` wrote; `total` is the sum of the counts.

    Raises:
        DamagedError: The file is missing or damaged.
        RunError: The file cannot be read.
    """
    names, counts = [], []
    for number, line in enumerate(read_lines(path, LONGEST_LINE), 1):
        name, tab, count = line.removesuffix(b"\n").rpartition(b"\t")
        count = count.removesuffix(b"\r")  # an editor may have changed the line ends
        if not tab or not _COUNT.fullmatch(count):
            raise damaged(path, f"line {number} is not a name, tab and count")
        try:
            names.append(name.decode())
        except UnicodeDecodeError as error:
            raise damaged(path, f"line {number} is not UTF-8") from error
        counts.append(int(count))
    total = sum(counts)
    if total not in COUNT:
        raise damaged(path, f"its counts add up to {total}")
    return Vocabulary(names, np.array(counts, np.int64), total)
