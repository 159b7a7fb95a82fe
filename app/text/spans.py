"""Where the blocks of a corpus lie, and their text by operations of TensorFlow alone.

So that any process which sees the files can make the n-th block, without the Python of this one.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from ..system.files import opener
from . import reading
from .blocks import interleave_sources, raise_read_errors


def is_cuttable(path: str) -> bool:
    """Whether a block can be read from the middle of the file: not of a compressed one."""
    return opener(path, plain=None) is None


def build_index(
    sources: tuple[str, ...], documents: str, invalid_utf8: str, block_bytes: int, readers: int
) -> np.ndarray:
    """The blocks of `blocks.block_dataset`, in its order: (N, 4) int64.

    Of each its source, the offset of its first byte there, its bytes, and the sequences in it that
    are not UTF-8. Reads the whole text, by the rule that makes the blocks themselves. RunError
    when a source cannot be read, and where it is not UTF-8 if invalid_utf8 is "error".
    """
    progress = reading.Progress.of(sources)

    def read(source: int) -> Iterator[list[int]]:
        path = sources[source]
        for offset, text in reading.raw_blocks(path, documents, block_bytes, progress, source):
            _, replaced = reading.to_valid_utf8(text, invalid_utf8, path, offset)
            yield [source, offset, len(text), replaced]

    signature = tf.TensorSpec([4], tf.int64)
    found = interleave_sources(len(sources), read, signature, progress, readers)
    with raise_read_errors(progress):
        return np.array(list(found.as_numpy_iterator()), np.int64).reshape(-1, 4)


def make_block_reader(
    sources: tuple[str, ...], index_N4: np.ndarray
) -> Callable[[tf.Tensor], tf.Tensor]:
    """From the number of a block, an int64 scalar, to its text, valid UTF-8: see `index`.

    Raises tf.errors.OpError where a source is not what it was.
    """
    paths = tf.constant([os.path.abspath(path) for path in sources])
    sizes = tf.constant([os.path.getsize(path) for path in sources], tf.int64)
    places = tf.constant(index_N4)

    def text(number: tf.Tensor) -> tf.Tensor:
        source, offset, count, replaced = tf.unstack(places[number])
        record = tf.data.FixedLengthRecordDataset(
            paths[source],
            record_bytes=count,
            header_bytes=offset,
            footer_bytes=sizes[source] - offset - count,
        )
        found = record.get_single_element()
        # ICU replaces the sequences that Python does (the Unicode standard, 3.9, U+FFFD).
        mended = functools.partial(tf.strings.unicode_transcode, found, "UTF-8", "UTF-8")
        return tf.cond(replaced > 0, mended, lambda: found)

    return text
