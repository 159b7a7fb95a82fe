"""Keep token ids, so that text is read and tokenized once (--cache)."""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf
from absl import logging

from ..errors import RunError, UsageError
from ..system.files import open_regular, replacing
from ..system.python_functions import from_generator
from ..text.reading import Progress
from ..text.vocabulary import UNKNOWN, Vocabulary
from .blocks import ALL, Share, without_tuning_thread

_SIGNATURE = tf.TensorSpec([None], tf.int32)
# The most bytes of token ids that --cache=auto keeps in memory: 268 million tokens.
_AUTO_BYTES = 1 << 30
_END = -1  # stands for the size of a block at the end of a file


def make_kept(kind: str, share: Share) -> KeptTokens | None:
    """Return where to keep the tokens of a text while it is counted, for `read_kept`, or None.

    Args:
        kind: The value of --cache. With `memory` all tokens are kept, with `auto` at most 1 GiB,
            and none with `none` and `disk`.
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


def choose(kind: str, epochs: int, tokens: int) -> str:
    """Return the kind of cache, a key of `CACHES`.

    Args:
        kind: The value of --cache. For `auto`, ids are kept in memory if they are read more than
            once and take at most 1 GiB.
        epochs: The number of epochs of the run.
        tokens: The number of tokens of the text.
    """
    if kind != "auto":
        return kind
    return "memory" if epochs > 1 and 4 * tokens <= _AUTO_BYTES else "none"


def cache_in_memory(blocks: tf.data.Dataset, progress: Progress) -> tf.data.Dataset:
    """Return a dataset of the blocks that keeps them in memory after its first complete pass.

    A token takes 4 bytes.

    Args:
        blocks: Dataset of tokens (M,) int32, which is read in each pass until then.
        progress: State of the corpus; a pass with an error in it is not complete.
    """
    cached: list[np.ndarray] = []
    is_complete = False

    def read() -> Iterator[np.ndarray]:
        """Yield the blocks from memory after a complete pass; else from `blocks`, and keep them."""
        nonlocal is_complete
        if is_complete:
            yield from cached
            return
        cached.clear()
        for block in blocks.as_numpy_iterator():
            cached.append(block)
            yield block
        is_complete = progress.error is None

    return without_tuning_thread(from_generator(read, _SIGNATURE, name="cache"))


def cache_on_disk(blocks: tf.data.Dataset, path: Path, progress: Progress) -> tf.data.Dataset:
    """Return a dataset of the blocks that keeps them in a file, or reads an existing file.

    The file is written during the first complete pass. If it is damaged, the rest of that pass
    comes from `blocks`, and the next pass writes the file again. If it cannot be written, the run
    continues without it. Both are logged.

    Args:
        blocks: Dataset of tokens (M,) int32, in the same order in each pass.
        path: The file; its name must change with everything the blocks depend on.
        progress: State of the corpus. After an error in it, a new pass is empty.
    """
    is_writable = True

    def read() -> Iterator[np.ndarray]:
        """Yield the blocks from the file, or from `blocks` where the file lacks them.

        Without a file, write it. Remove a damaged one. Yield nothing after an error in reading the
        corpus.
        """
        nonlocal is_writable
        if progress.error is not None:  # the previous epoch failed
            return
        if not path.exists():
            if is_writable:
                is_writable = yield from _write_blocks(blocks, path, progress)
            else:
                yield from blocks.as_numpy_iterator()
            return
        count = 0
        try:
            for block in _read_blocks(path):
                yield block
                count += 1
        except (OSError, ValueError):
            logging.warning(
                "--cache=disk: %s is damaged; the text is read again and the cache is rebuilt", path
            )
            path.unlink(missing_ok=True)
            yield from blocks.skip(count).as_numpy_iterator()

    return without_tuning_thread(from_generator(read, _SIGNATURE, name="cache"))


def _write_blocks(
    blocks: tf.data.Dataset, path: Path, progress: Progress
) -> Generator[np.ndarray, None, bool]:
    """Yield blocks, and write each to a new cache file before; go on without if that fails.

    After an error in reading there is no file.

    Returns:
        Whether the file could be written.
    """
    source = blocks.as_numpy_iterator()
    unsent = None  # the block that is being written
    try:
        with replacing(path) as temporary, open(temporary, "wb") as file:
            for unsent in source:
                file.write(np.int64([len(unsent), zlib.crc32(unsent)]).tobytes())
                file.write(unsent.tobytes())
                written, unsent = unsent, None
                yield written
            if progress.error is not None:
                raise progress.error
            file.write(np.int64([_END, 0]).tobytes())
        return True
    except (RunError, UsageError) as error:
        if progress.error is not None:
            return True
        logging.warning("--cache=disk: %s; the run continues without a cache", error)
        if unsent is not None:
            yield unsent
        yield from source
        return False


def _read_blocks(path: Path) -> Iterator[np.ndarray]:
    """Yield the blocks of a cache file; raise ValueError or OSError where it is damaged.

    Before each block are its size and its CRC-32, and at the end is `_END`.
    """
    # Not mapped: access beyond the end of a truncated file would kill the process (SIGBUS).
    with open_regular(path) as file:
        most = os.fstat(file.fileno()).st_size // 4
        while True:
            size, checksum = np.frombuffer(file.read(16), np.int64, 2).tolist()
            if size == _END:
                if checksum or file.read(1):
                    raise ValueError("blocks follow the end")
                return
            if not 0 <= size <= most:
                raise ValueError("a block is larger than the file")
            block = np.frombuffer(file.read(4 * size), np.int32, size)
            if zlib.crc32(block) != checksum:
                raise ValueError("a block has another checksum")
            yield block


# A function (blocks, progress, path) by kind, which returns the blocks with the cache. `path`
# returns the file of a cache on disk.
CACHES: dict[str, Callable[[tf.data.Dataset, Progress, Callable[[], Path]], tf.data.Dataset]] = {
    "none": lambda blocks, progress, path: blocks,
    "memory": lambda blocks, progress, path: cache_in_memory(blocks, progress),
    "disk": lambda blocks, progress, path: cache_on_disk(blocks, path(), progress),
}


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
