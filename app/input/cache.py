"""Token ids kept between epochs, so that text is read and tokenised once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import tensorflow as tf

from app.files import replacing

_SIGNATURE = tf.TensorSpec([None], tf.int32)


def in_memory(blocks: Iterable[np.ndarray]) -> tf.data.Dataset:
    """Blocks of tokens, (M,) int32 each, held in memory: 4 bytes a token."""
    held = list(blocks)
    return tf.data.Dataset.from_generator(lambda: iter(held), output_signature=_SIGNATURE)


def on_disk(blocks: Iterable[np.ndarray], path: Path) -> tf.data.Dataset:
    """The same in a file, which is used as it is when it is there already.

    `path` must name what the blocks depend on. Beside it, PATH.sizes.npy holds the blocks' sizes;
    it is written last, so that the file of a killed run is not taken for whole. RunError if they
    cannot be written.
    """
    sizes_path = path.with_name(path.name + ".sizes.npy")
    if not sizes_path.exists():
        sizes = []
        with replacing(path) as temporary, open(temporary, "wb") as file:
            for block in blocks:
                sizes.append(len(block))
                block.tofile(file)
        with replacing(sizes_path) as temporary, open(temporary, "wb") as file:
            np.save(file, np.array(sizes, np.int64))
    sizes = np.load(sizes_path)
    ends = np.cumsum(sizes)

    def read():
        # An empty file cannot be mapped.
        tokens = np.memmap(path, np.int32, mode="r") if sizes.any() else np.empty(0, np.int32)
        for start, end in zip(ends - sizes, ends, strict=True):
            yield tokens[start:end]

    return tf.data.Dataset.from_generator(read, output_signature=_SIGNATURE)
