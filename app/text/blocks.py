"""The blocks of a corpus as a tf.data.Dataset."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from ..errors import RunError
from . import reading

# What makes a dataset, and the functions of its maps: tf.data would have autograph rewrite them,
# tensorflow_text's included, in a second or two. They have no branches by tensors.
without_autograph = tf.autograph.experimental.do_not_convert


def block_dataset(
    sources: tuple[str, ...],
    documents: str,
    invalid_utf8: str,
    progress: reading.Progress,
    block_bytes: int = reading.BLOCK_BYTES,
    readers: int = 4,
) -> tf.data.Dataset:
    """A dataset of string scalars: the `reading.blocks` of every source.

    The blocks of `readers` sources at a time are taken in turn, in an order that depends on nothing
    but the arguments. No document goes on in another block: one that is longer than a block is cut
    into documents of a block each (at white space). That loses the pairs of words across the cut,
    at most window · (window + 1) for a block; a MiB of text has about a million.

    `progress` (of the same sources) is kept up to date. A source that cannot be read ends the
    dataset early and quietly (tf.data would print tracebacks): iterate inside `reported`.
    """

    def read(index: int) -> Iterator[bytes]:
        return reading.blocks(sources[index], documents, invalid_utf8, block_bytes, progress, index)

    return interleave_sources(len(sources), read, tf.TensorSpec([], tf.string), progress, readers)


@without_autograph
def interleave_sources(
    sources: int,
    read: Callable[[int], Iterator[Any]],
    signature: tf.TensorSpec,
    progress: reading.Progress,
    readers: int,
) -> tf.data.Dataset:
    """What `read` yields for each of so many sources, in the order of `block_dataset`.

    signature: of what it yields. A RunError of `read` ends the dataset early and quietly.
    """

    def guarded(index: int) -> Iterator[Any]:
        try:
            for item in read(index):
                if progress.error is not None:
                    return
                yield item
        except RunError as error:
            progress.error = error

    def items_of(index: tf.Tensor) -> tf.data.Dataset:
        return tf.data.Dataset.from_generator(
            guarded, args=(index,), output_signature=signature, name="read"
        )

    items = tf.data.Dataset.range(sources).interleave(
        items_of,
        cycle_length=min(readers, sources),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    return without_tuning_thread(items)


def without_tuning_thread(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The dataset, and what is made of it, without the thread that tunes tf.data's parameters.

    In TensorFlow 2.21 an iterator that is deleted waits until that thread wakes, which takes longer
    and longer: 4 seconds after an epoch of 8, up to a minute later. AUTOTUNE then means as many
    calls at a time as there are threads; a prefetch still finds its own depth.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


@contextlib.contextmanager
def raise_read_errors(progress: reading.Progress) -> Iterator[None]:
    """Raises, at the end of the block, the RunError that ended a dataset early."""
    try:
        yield
    finally:
        if progress.error is not None:
            raise progress.error


def split_documents(text: tf.Tensor, documents: str) -> tf.Tensor:
    """The documents of a block: (N,) strings, N at least 1.

    text: a string scalar. An empty line, and what follows the last line end, is an empty document.
    """
    if documents == "line":
        return tf.strings.split(text, "\n")
    return text[tf.newaxis]
