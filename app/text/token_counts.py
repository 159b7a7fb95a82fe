"""Counts of the tokens of a share of a text, and how a team of processes adds them."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ..types import Team
from .teamwork import gather_parts


class Tally:
    """The counts of tokens, which have numbers in the order of their first appearance.

    Args:
        counts: The counts to begin with.
    """

    def __init__(self, counts: Mapping[bytes, int]):
        count = itertools.count(len(counts)).__next__
        numbers = dict(zip(counts, range(len(counts)), strict=True))
        self._numbers = collections.defaultdict(count, numbers)
        self._counts_N = np.fromiter(counts.values(), np.int64, len(counts))

    def __len__(self) -> int:
        """Return the number of different tokens."""
        return len(self._numbers)

    def add(self, tokens: Sequence[bytes], counts_U: np.ndarray) -> np.ndarray:
        """Add the counts of some tokens, and return the number of each, (U,) int64.

        Args:
            tokens: U different tokens.
            counts_U: The count of each.
        """
        numbers_U = np.fromiter(map(self._numbers.__getitem__, tokens), np.int64, len(tokens))
        missing = len(self._numbers) - len(self._counts_N)
        if missing > 0:  # as many again, so that few calls copy all counts
            self._counts_N = np.pad(self._counts_N, (0, missing + len(self._counts_N)))
        self._counts_N[numbers_U] += counts_U
        return numbers_U

    def counts(self) -> dict[bytes, int]:
        """Return the count of each token, in the order of their numbers."""
        return dict(zip(self._numbers, self._counts_N.tolist(), strict=False))


@dataclasses.dataclass
class TokenCounts:
    """The counts of the tokens of a text, or of a share of it.

    Attributes:
        tally: Count of each token.
        total: Number of all tokens.
        blocks: Number of blocks of the text.
        too_long: Number of tokens that were dropped as too long.
        replaced: For each source, the number of sequences that were not UTF-8.
        is_pruned: Whether rare tokens were dropped to save memory.
    """

    tally: dict[bytes, int]
    total: int
    blocks: int
    too_long: int
    replaced: list[int]
    is_pruned: bool


def gather(count: Callable[[], TokenCounts], team: Team) -> list[TokenCounts]:
    """Return the counts of every process of a team; all processes call this together.

    The tokens of pruned counts are left out, as nobody can use them.

    Args:
        count: Counts the share of this process.
        team: The processes.

    Raises:
        UsageError, RunError: `count` raised it in some process.
    """
    return [_decode(part) for part in gather_parts(team, lambda: _encode(count()))]


def merge(parts: Sequence[TokenCounts]) -> TokenCounts:
    """Return the counts of a text from those of its shares.

    Args:
        parts: The counts of each share; the first is changed.
    """
    tally = parts[0].tally
    for part in parts[1:]:
        for token, count in part.tally.items():
            tally[token] = tally.get(token, 0) + count
    return TokenCounts(
        tally,
        sum(part.total for part in parts),
        sum(part.blocks for part in parts),
        sum(part.too_long for part in parts),
        [sum(counts) for counts in zip(*(part.replaced for part in parts), strict=True)],
        any(part.is_pruned for part in parts),
    )


def _encode(counts: TokenCounts) -> bytes:
    """Return counts as bytes: a line of JSON, the counts of the tokens, and a token a line."""
    tally = {} if counts.is_pruned else counts.tally
    numbers = dataclasses.asdict(dataclasses.replace(counts, tally={})) | {"tokens": len(tally)}
    occurrences = np.fromiter(tally.values(), np.int64, len(tally))
    # No token has a line end: they are white space to every tokenizer.
    parts = [json.dumps(numbers).encode(), b"\n", occurrences.tobytes(), b"\n".join(tally)]
    return b"".join(parts)


def _decode(message: bytes) -> TokenCounts:
    """Return the counts that `_encode` wrote."""
    start = message.index(b"\n") + 1
    numbers = json.loads(message[:start])
    size = numbers.pop("tokens")
    occurrences = np.frombuffer(message, np.int64, size, start).tolist()
    tokens = message[start + 8 * size :].split(b"\n") if size else []
    return TokenCounts(**numbers | {"tally": dict(zip(tokens, occurrences, strict=True))})
