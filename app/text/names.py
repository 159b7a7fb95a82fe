"""Names that may hold blanks, such as labels, users and items: counted, and kept by their ids."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..errors import UsageError
from ..system.checked_files import COUNT, damaged, read_bytes
from ..system.files import replacing
from .vocabulary import Vocabulary

_COUNT = re.compile(rb"[1-9][0-9]{0,18}")


def count_names(
    names: Sequence[str], ids_M: np.ndarray, min_count: int = 1, most: int = 0
) -> Vocabulary:
    """The names by descending count, then by code point; `most` of them at most if that is not 0.

    ids_M: each occurrence.
    """
    counts_V = np.bincount(ids_M, minlength=len(names))
    kept = sorted((-int(counts_V[i]), names[i]) for i in np.flatnonzero(counts_V >= min_count))
    kept = kept[: most or None]
    counts = np.array([-count for count, _ in kept], np.int64)
    return Vocabulary([name for _, name in kept], counts, len(ids_M))


def save(names: Vocabulary, path: Path) -> None:
    """Write a line `name<TAB>count` for each id in turn.

    Raises:
        UsageError: A name has a line break "\\n"; any other character is kept as it is.
    """
    broken = next((name for name in names.tokens if "\n" in name), None)
    if broken is not None:
        raise UsageError(f"{broken!r} holds a line break, which {path.name} cannot; rename it")
    lines = zip(names.tokens, names.counts.tolist(), strict=True)
    with replacing(path) as temporary:
        text = "".join(f"{name}\t{count}\n" for name, count in lines)
        temporary.write_text(text, encoding="utf-8", newline="\n")


def load(path: Path) -> Vocabulary:
    """Read what `save` wrote.

    Raises:
        DamagedError: The file is missing or damaged.
        RunError: The file cannot be read.
    """
    *lines, rest = read_bytes(path).split(b"\n")
    if rest or not lines:
        raise damaged(path, "its last line is cut short" if rest else "it is empty")
    names, counts = [], []
    for number, line in enumerate(lines, 1):
        name, tab, count = line.rpartition(b"\t")
        count = count.removesuffix(b"\r")  # of a file that went through an editor
        if not tab or not _COUNT.fullmatch(count):
            raise damaged(path, f"line {number} is no name, tab and count")
        try:
            names.append(name.decode())
        except UnicodeDecodeError as error:
            raise damaged(path, f"line {number} is not UTF-8") from error
        counts.append(int(count))
    total = sum(counts)
    if total not in COUNT:
        raise damaged(path, f"its counts add up to {total}")
    return Vocabulary(names, np.array(counts, np.int64), total)
