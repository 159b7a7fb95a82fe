"""Keep token ids, so that text is read and tokenized once (--cache)."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from ..system.python_functions import from_generator
from ..text.vocabulary import UNKNOWN, Vocabulary
from .blocks import ALL, Share, without_tuning_thread

_SIGNATURE = tf.TensorSpec([None], tf.int32)
# The most bytes of token ids that --cache=auto keeps in memory: 268 million tokens.
_AUTO_BYTES = 1 << 30


def make_kept(kind: str, share: Share) -> KeptTokens | None:
    """Return where to keep the tokens of a text while it is counted, for `read_kept`, or None.

    Args:
        kind: The value of --cache. With `memory` all tokens are kept, with `auto` at most 1 GiB,
            and none with `none`.
        share: The share of the text that this process counts.
    """
    limits = {"memory": sys.maxsize, "auto": _AUTO_BYTES}
    return KeptTokens(limits[kind], share) if kind in limits else None


def read_kept(kept: KeptTokens, share: Share) -> tf.data.Dataset:
    """Return a dataset of the blocks of a share, tokens (M,) int32.

    Args:
        kept: The blocks, with ids.
        share: The blocks to return, all of them kept (see `KeptTokens.covers`).
    """
    blocks = from_generator(lambda: kept.blocks(share), _SIGNATURE, name="cache")
    return without_tuning_thread(blocks)


def keeps(kind: str, epochs: int, tokens: int) -> bool:
    """Return whether token ids are kept in memory.

    Args:
        kind: The value of --cache. For `auto`, ids are kept if they are read more than once and
            take at most 1 GiB.
        epochs: The number of epochs of the run.
        tokens: The number of tokens of the text.
    """
    if kind != "auto":
        return kind == "memory"
    return epochs > 1 and 4 * tokens <= _AUTO_BYTES


class KeptTokens:
    """The blocks of a share of a text, 4 bytes a token, until they would take too many bytes.

    A token is a number while the text is counted, and an id once the vocabulary is known. Tokens
    are encoded as in `input.token_rows`: the first token of a document as its bitwise complement.

    Args:
        limit_bytes: The most bytes to keep. Beyond it, nothing is kept.
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
        if self._blocks is None:
            return
        tokens_M = numbers_M.astype(np.int32)
        tokens_M[starts_D] = ~tokens_M[starts_D]
        self._free -= tokens_M.nbytes
        self._blocks.append((False, tokens_M))
        if self._free < 0:
            self.give_up()

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
        """Return whether the blocks of a share of the text are among those that are kept."""
        total = self._share.total
        return share.total % total == 0 and share.number % total == self._share.number

    def blocks(self, share: Share) -> Iterator[np.ndarray]:
        """Yield the blocks of a share that is covered, as known tokens (M,) int32."""
        assert self.covers(share) and self._blocks is not None
        first, step = share.number // self._share.total, share.total // self._share.total
        for place in range(first, len(self._blocks), step):
            has_ids, tokens_M = self._blocks[place]
            if not has_ids:
                tokens_M = _identify(tokens_M, self._ids)
                self._blocks[place] = True, tokens_M
            yield tokens_M


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
