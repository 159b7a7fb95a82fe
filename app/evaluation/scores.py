"""What every benchmark gives back."""

from __future__ import annotations

from typing import NamedTuple


class Score(NamedTuple):
    """One number, what it covers, and the protocol that it was taken under.

    measure: `spearman` (-1 to 1) or `accuracy` (0 to 1). value: None where it is undefined, and
    `note` says why. used, skipped: items scored, and items left out because of an unknown word.
    parts: scores of the sections that this one sums up.
    """

    name: str
    measure: str
    value: float | None
    used: int
    skipped: int
    protocol: str
    note: str = ""
    parts: tuple[Score, ...] = ()
