"""The tokens of a text by block, kept from the pass that counts them.

With them, the first epoch need not read and split the text again. A process of a team keeps the
blocks of the share that it counts.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .shares import ALL, Share
from .vocabulary import UNKNOWN, Vocabulary


class KeptTokens:
    """The blocks of a share of a text, 4 bytes a token, until they would take too many bytes.

    A token is a number while the text is counted, and an id once the vocabulary is known. Tokens
    are encoded as in `input.tokens`: the first token of a document as its bitwise complement.

    Args:
        limit_bytes: The most bytes to keep. Beyond it, nothing is kept.
        share: The share.
    """

    def __init__(self, limit_bytes: int, share: Share = ALL):
        self._free, self._share = limit_bytes, share
        # Whether a block has ids, and its tokens, as one item: threads read and replace it at once.
        self._blocks: list[tuple[bool, np.ndarray]] | None = []
        self._tokens: list[bytes] = []  # the token of each number
        self._ids: np.ndarray | None = None

    @property
    def is_complete(self) -> bool:
        """Return whether all blocks so far are kept."""
        return self._blocks is not None

    def add(self, numbers_M: np.ndarray, starts_D: np.ndarray) -> None:
        """Keep a block, unless the blocks would then take more bytes than allowed.

        Args:
            numbers_M: The number of each token, not negative.
            starts_D: The positions of the first tokens of documents.
        """
        tokens_M = numbers_M.astype(np.int32)
        tokens_M[starts_D] = ~tokens_M[starts_D]
        self._free -= tokens_M.nbytes
        if self._free < 0:
            self.give_up()
        if self._blocks is not None:
            self._blocks.append((False, tokens_M))

    def give_up(self) -> None:
        """Keep nothing from now on."""
        self._blocks = None

    def finish(self, tokens: list[bytes]) -> None:
        """Set the tokens of the numbers. Call it once, when all blocks are added.

        Args:
            tokens: The token of each number.
        """
        self._tokens = tokens

    def identify(self, vocabulary: Vocabulary) -> None:
        """Set the ids of the tokens. Call it once, after `finish`.

        Args:
            vocabulary: The tokens with an id.
        """
        ids = {token.encode(): index for index, token in enumerate(vocabulary.tokens)}
        found = (ids.get(token, UNKNOWN) for token in self._tokens)
        self._ids = np.fromiter(found, np.int32, len(self._tokens))
        self._tokens = []

    def covers(self, share: Share) -> bool:
        """Return whether the blocks of a share of the text are among those that are kept.

        Args:
            share: The share.
        """
        total = self._share.total
        return share.total % total == 0 and share.number % total == self._share.number

    def blocks(self, share: Share) -> Iterator[np.ndarray]:
        """Yield the blocks of a share that is covered, as tokens (M,) int32 (see `input.tokens`).

        Unknown tokens are left out.

        Args:
            share: The share.
        """
        assert self.covers(share) and self._blocks is not None
        first, step = share.number // self._share.total, share.total // self._share.total
        for place in range(first, len(self._blocks), step):
            yield self._block(place)

    def _block(self, number: int) -> np.ndarray:
        """Return the known tokens of the block that was added as the `number`-th, from 0."""
        assert self._blocks is not None and self._ids is not None
        has_ids, tokens_M = self._blocks[number]
        if not has_ids:
            tokens_M = _identify(tokens_M, self._ids)
            self._blocks[number] = True, tokens_M
        return tokens_M


def _identify(tokens_M: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Return the ids of the tokens of a block without unknown ones, encoded as before.

    Args:
        tokens_M: The encoded numbers of the tokens.
        ids: The id of each number, or `UNKNOWN`.
    """
    is_first = tokens_M < 0
    ids_M = ids[np.where(is_first, ~tokens_M, tokens_M)]
    is_known = ids_M != UNKNOWN
    document = np.cumsum(is_first)[is_known]
    ids_K = ids_M[is_known]
    # The first known token of a document begins it.
    return np.where(np.diff(document, prepend=-1) != 0, ~ids_K, ids_K)
