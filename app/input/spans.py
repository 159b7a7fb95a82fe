"""Positions of the blocks of a corpus, and a function of TensorFlow operations that reads a block.

So any process that sees the files can make a block by its number, without the Python objects of
this process.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from ..settings import CorpusConfig, InputConfig
from ..text import reading
from .blocks import interleave_sources, raise_read_errors


def build_index(
    sources: tuple[str, ...], corpus: CorpusConfig, settings: InputConfig
) -> np.ndarray:
    """Read the whole text, and return the positions of its blocks, (N, 4) int64.

    The columns are the number of the source, the offset of the first byte, the number of bytes, and
    the number of sequences that are not UTF-8. The blocks and their order are equal to those of
    `blocks.block_dataset`.

    Args:
        sources: Paths of the files.
        corpus: How to divide the text into documents, and what to do with invalid UTF-8.
        settings: Largest size of a block, and number of sources to read at a time.

    Raises:
        RunError: A source cannot be read, or it is not UTF-8 with --invalid_utf8=error.
    """
    progress = reading.Progress.make(sources)

    def read(source: int) -> Iterator[list[int]]:
        """Yield the position of each block of a source."""
        path, size = sources[source], settings.block_bytes
        for offset, text in reading.raw_blocks(path, corpus.documents, size, progress, source):
            _, replaced = reading.to_valid_utf8(text, corpus.invalid_utf8, path, offset)
            yield [source, offset, len(text), replaced]

    signature = tf.TensorSpec([4], tf.int64)
    positions = interleave_sources(len(sources), read, signature, progress, settings.readers)
    with raise_read_errors(progress):
        return np.array(list(positions.as_numpy_iterator()), np.int64).reshape(-1, 4)


def make_block_reader(
    sources: tuple[str, ...], index_N4: np.ndarray
) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return a function from the number of a block, an int64 scalar, to its text, valid UTF-8.

    The function reads the file when it is called. It raises tf.errors.OpError if the size of the
    file has changed since `make_block_reader`.

    Args:
        sources: Paths of the files, each `columns.is_cuttable`.
        index_N4: Positions of the blocks (see `build_index`).
    """
    paths = tf.constant([os.path.abspath(path) for path in sources])
    sizes = tf.constant([os.path.getsize(path) for path in sources], tf.int64)
    positions = tf.constant(index_N4)

    def read_text(number: tf.Tensor) -> tf.Tensor:
        """Return the text of a block, a string scalar; bytes that are not UTF-8 become U+FFFD."""
        source, offset, count, replaced = tf.unstack(positions[number])
        record = tf.data.FixedLengthRecordDataset(
            paths[source],
            record_bytes=count,
            header_bytes=offset,
            footer_bytes=sizes[source] - offset - count,
        )
        block = record.get_single_element()
        # ICU replaces the same sequences as Python (the Unicode standard, 3.9, U+FFFD).
        replace_invalid = functools.partial(tf.strings.unicode_transcode, block, "UTF-8", "UTF-8")
        return tf.cond(replaced > 0, replace_invalid, lambda: block)

    return read_text
