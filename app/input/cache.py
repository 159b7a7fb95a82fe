"""Token ids kept between epochs, so that text is read and tokenised once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf

from app.files import replacing

_SIGNATURE = tf.TensorSpec([None], tf.int32)


def in_memory(blocks: tf.data.Dataset) -> tf.data.Dataset:
    """Blocks of tokens, (M,) int32 each, held from the first whole pass on: 4 bytes a token."""
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
        whole = True

    return tf.data.Dataset.from_generator(read, output_signature=_SIGNATURE)


def on_disk(blocks: tf.data.Dataset, path: Path) -> tf.data.Dataset:
    """The same in a file, which is used as it is when it is there already.

    `path` must name what the blocks depend on. Beside it, PATH.sizes.npy holds the blocks' sizes;
    it is written last, so that the file of a killed run is not taken for whole. Iterating raises
    RunError if they cannot be written.
    """
    sizes_path = path.with_name(path.name + ".sizes.npy")

    def first() -> Iterator[np.ndarray]:
        sizes = []
        with replacing(path) as temporary, open(temporary, "wb") as file:
            for block in blocks.as_numpy_iterator():
                sizes.append(len(block))
                block.tofile(file)
                yield block
        with replacing(sizes_path) as temporary, open(temporary, "wb") as file:
            np.save(file, np.array(sizes, np.int64))

    def read() -> Iterator[np.ndarray]:
        if not sizes_path.exists():
            yield from first()
            return
        ends = np.cumsum(np.load(sizes_path))
        tokens = np.memmap(path, np.int32, mode="r") if ends.size and ends[-1] else np.empty(0)
        for start, end in zip(np.append(0, ends[:-1]), ends, strict=True):
            yield tokens[start:end]

    return tf.data.Dataset.from_generator(read, output_signature=_SIGNATURE)
