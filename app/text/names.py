"""Names that may hold blanks, such as labels, users and items: counted, and kept by their ids."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from app.errors import UsageError
from app.files import replacing
from app.text.vocabulary import Vocabulary


def counted(
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
    """Reads what `save` wrote. UsageError if it is damaged."""
    lines = path.read_bytes().decode().split("\n")[:-1]  # "\r" is a part of a name
    try:
        names, counts = zip(*(line.rsplit("\t", 1) for line in lines), strict=True)
        counts_V = np.array(counts, np.int64)
    except ValueError as error:
        raise UsageError(f"{path} is damaged; train in a new workdir") from error
    return Vocabulary(list(names), counts_V, int(counts_V.sum()))
