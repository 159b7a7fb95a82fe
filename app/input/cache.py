"""Token ids kept between epochs, so that text is read and tokenised once.

Both functions take the blocks of tokens of a corpus, (M,) int32 each, and give them on; what was
read from end to end without an error is kept. Iterate inside `text.blocks.raise_read_errors(progress)`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf
from absl import logging

from ..errors import RunError, UsageError
from ..system.files import open_regular, replacing
from ..text.blocks import without_tuning_thread
from ..text.reading import Progress

_SIGNATURE = tf.TensorSpec([None], tf.int32)


def cache_in_memory(blocks: tf.data.Dataset, progress: Progress) -> tf.data.Dataset:
    """Keeps the blocks in memory: 4 bytes a token."""
    held: list[np.ndarray] = []
    whole = False

    def read() -> Iterator[np.ndarray]:
        nonlocal whole
        if whole:
            yield from held
            return
        held.clear()
        for block in blocks.as_numpy_iterator():
            held.append(block)
            yield block
        whole = progress.error is None

    kept = tf.data.Dataset.from_generator(read, output_signature=_SIGNATURE, name="cache")
    return without_tuning_thread(kept)


def cache_on_disk(blocks: tf.data.Dataset, path: Path, progress: Progress) -> tf.data.Dataset:
    """Return the blocks, kept in a file, which is used as it is when it is there already.

    Beside the file, PATH.sizes.npy holds the size and the CRC-32 of each block. It is written last,
    so that the file of a killed run is not taken for whole. A cache that is damaged is made anew,
    and where it cannot be written the run goes on without it; both are logged.

    Args:
        blocks: the tokens of a corpus, in the same order in each pass.
        path: the file; its name must change with whatever the blocks depend on.
        progress: of the corpus.
    """
    sizes_path = path.with_name(path.name + ".sizes.npy")
    is_writable = True

    def write() -> Iterator[np.ndarray]:
        nonlocal is_writable
        index: list[tuple[int, int]] = []
        texts = blocks.as_numpy_iterator()
        waiting = None  # the block that is being written
        try:
            with replacing(path) as temporary, open(temporary, "wb") as file:
                for waiting in texts:
                    file.write(waiting.tobytes())
                    index.append((len(waiting), _checksum(waiting)))
                    given, waiting = waiting, None
                    yield given
            if progress.error is None:
                with replacing(sizes_path) as temporary, open(temporary, "wb") as file:
                    np.save(file, np.array(index, np.int64).reshape(-1, 2))
        except (RunError, UsageError) as error:
            is_writable = False
            logging.warning("--cache=disk: %s; going on without a cache", error)
            if waiting is not None:
                yield waiting
            yield from texts

    def read() -> Iterator[np.ndarray]:
        if progress.error is not None:  # in the epoch before
            return
        index = _index(path, sizes_path)
        if index is None:
            yield from write() if is_writable else blocks.as_numpy_iterator()
            return
        given = 0
        for block in _read_blocks(path, index):
            yield block
            given += 1
        if given < len(index):
            logging.warning(
                "--cache=disk: %s is damaged; reading the text again, and making it anew", path
            )
            sizes_path.unlink(missing_ok=True)
            yield from blocks.skip(given).as_numpy_iterator()

    kept = tf.data.Dataset.from_generator(read, output_signature=_SIGNATURE, name="cache")
    return without_tuning_thread(kept)


def _index(path: Path, sizes_path: Path) -> np.ndarray | None:
    """Return the size and the checksum of each block, (N, 2) int64; None without a whole cache."""
    try:
        index = np.load(sizes_path)
        length = path.stat().st_size
    except FileNotFoundError:
        return None
    except (OSError, ValueError, EOFError) as error:
        logging.warning("--cache=disk: cannot read %s (%s); making it anew", sizes_path, error)
        return None
    if index.ndim != 2 or length != 4 * index[:, 0].sum():
        logging.warning("--cache=disk: %s is not as long as its blocks; making it anew", path)
        return None
    return index


def _read_blocks(path: Path, index: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the blocks of a cache until one of them is damaged."""
    # The file is read, not mapped: access to a mapped file that was cut short kills the process.
    try:
        with open_regular(path) as file:
            for size, checksum in index.tolist():
                block = np.frombuffer(file.read(4 * size), np.int32)
                if len(block) != size or _checksum(block) != checksum:
                    return
                yield block
    except (OSError, ValueError) as error:  # ValueError: half a number is left
        logging.warning("--cache=disk: cannot read %s: %s", path, error)


def _checksum(block: np.ndarray) -> int:
    return zlib.crc32(block)
