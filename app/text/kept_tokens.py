"""The tokens of a text by block, kept from the pass that counts them.

With them, the first epoch need not read and split the text again.
"""

from __future__ import annotations

import numpy as np

from .vocabulary import UNKNOWN, Vocabulary


class KeptTokens:
    """The blocks of a text in memory, 4 bytes a token, until they would take too many bytes.

    A token is a number while the text is counted, and an id once the vocabulary is known. Tokens
    are encoded as in `input.tokens`: the first token of a document as its bitwise complement.

    Args:
        limit_bytes: The most bytes to keep. Beyond it, nothing is kept.
    """

    def __init__(self, limit_bytes: int):
        self._free = limit_bytes
        # Whether a block has ids, and its tokens, as one item: threads read and replace it at once.
        self._blocks: list[tuple[bool, np.ndarray]] | None = []
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

    def identify(self, tokens: list[bytes], vocabulary: Vocabulary) -> None:
        """Set the ids of the tokens. Call it once, when all blocks are added.

        Args:
            tokens: The token of each number.
            vocabulary: The tokens with an id.
        """
        ids = {token.encode(): index for index, token in enumerate(vocabulary.tokens)}
        found = (ids.get(token, UNKNOWN) for token in tokens)
        self._ids = np.fromiter(found, np.int32, len(tokens))

    @property
    def count(self) -> int:
        """Return the number of blocks."""
        assert self._blocks is not None
        return len(self._blocks)

    def block(self, number: int) -> np.ndarray:
        """Return the tokens of a block without unknown ones, (M,) int32 (see `input.tokens`).

        Args:
            number: The number of the block in the text.
        """
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
