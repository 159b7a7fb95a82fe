"""Token ids kept between epochs, so that text is read and tokenised once.

Both functions take the blocks of tokens of a corpus, (M,) int32 each, and give them on; what was
read from end to end without an error is kept. Iterate inside `text.blocks.reported(progress)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf

from app.errors import RunError
from app.files import replacing
from app.text.blocks import without_tuning_thread
from app.text.reading import Progress

_SIGNATURE = tf.TensorSpec([None], tf.int32)


def in_memory(blocks: tf.data.Dataset, progress: Progress) -> tf.data.Dataset:
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


def on_disk(blocks: tf.data.Dataset, path: Path, progress: Progress) -> tf.data.Dataset:
    """Keeps the blocks in a file, which is used as it is when it is there already.

    `path` must name what the blocks depend on. Beside it, PATH.sizes.npy holds the blocks' sizes;
    it is written last, so that the file of a killed run is not taken for whole. A file that cannot
    be written ends the dataset, as a source that cannot be read does.
    """
    sizes_path = path.with_name(path.name + ".sizes.npy")

    def write() -> Iterator[np.ndarray]:
        sizes = []
        try:
            with replacing(path) as temporary, open(temporary, "wb") as file:
                for block in blocks.as_numpy_iterator():
                    sizes.append(len(block))
                    block.tofile(file)
                    yield block
            if progress.error is None:
                with replacing(sizes_path) as temporary, open(temporary, "wb") as file:
                    np.save(file, np.array(sizes, np.int64))
        except RunError as error:
            progress.error = error

    def read() -> Iterator[np.ndarray]:
        if progress.error is not None:  # in the epoch before
            return
        if not sizes_path.exists():
            yield from write()
            return
        sizes = np.load(sizes_path)
        ends = np.cumsum(sizes)
        # An empty file cannot be mapped.
        tokens = np.memmap(path, np.int32, mode="r") if sizes.any() else np.empty(0, np.int32)
        for start, end in zip(ends - sizes, ends, strict=True):
            yield tokens[start:end]

    kept = tf.data.Dataset.from_generator(read, output_signature=_SIGNATURE, name="cache")
    return without_tuning_thread(kept)
