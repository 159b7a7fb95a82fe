"""The result of a benchmark."""

from __future__ import annotations

from typing import NamedTuple


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
    """

    name: str
    measure: str
    value: float | None
    used: int
    skipped: int
    protocol: str
    note: str = ""
    parts: tuple[Score, ...] = ()
