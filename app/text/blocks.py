"""The blocks of a corpus as a tf.data.Dataset."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from ..errors import RunError, UsageError
from ..settings import CorpusConfig, InputConfig
from ..system.python_functions import from_generator
from . import columns, reading

# Decorator for functions that make datasets. Without it, tf.data lets autograph rewrite the
# functions of maps, tensorflow_text's included, which takes a second or two. None of them branches
# on a tensor, so autograph has nothing to do.
without_autograph = tf.autograph.experimental.do_not_convert


def block_dataset(
    sources: tuple[str, ...],
    corpus: CorpusConfig,
    settings: InputConfig,
    progress: reading.Progress,
) -> tf.data.Dataset:
    """Return a dataset of the `columns.read_text` of every source, string scalars.

    Files are read only when the dataset is iterated. The blocks of --readers sources are taken in
    turn. The order depends only on the arguments. No document continues in another block: a
    document longer than a block becomes documents of a block each, cut at white space. That loses
    the word pairs across the cut, at most window (window + 1) per block; a MiB of text has about a
    million.

    A source that cannot be read ends the dataset early and without a message, since tf.data would
    print tracebacks. So iterate inside `raise_read_errors`.

    Args:
        sources: Paths of the files.
        corpus: How to read the files.
        settings: Largest size of a block, and number of sources to read at a time.
        progress: State of these sources; updated while they are read.
    """

    def read(index: int) -> Iterator[bytes]:
        """Return an iterator over the blocks of the source of this number."""
        return columns.read_text(sources[index], corpus, settings.block_bytes, progress, index)

    signature = tf.TensorSpec([], tf.string)
    return interleave_sources(len(sources), read, signature, progress, settings.readers)


@without_autograph
def interleave_sources(
    sources: int,
    read: Callable[[int], Iterator[Any]],
    signature: tf.TensorSpec,
    progress: reading.Progress,
    readers: int,
) -> tf.data.Dataset:
    """Return a dataset of the elements of each source, from `readers` sources in turn.

    A RunError or UsageError of `read` is put into `progress`. It ends the dataset early and without
    a message.

    Args:
        sources: Number of sources.
        read: Function from the number of a source to its elements. Called when the dataset is
            iterated, in threads of tf.data.
        signature: Shape and dtype of an element.
        progress: Gets the error; an error in it ends all sources.
        readers: Number of sources to read at a time.
    """

    def read_until_error(index: int) -> Iterator[Any]:
        """Yield the elements of a source until any has an error; put its own in `progress`."""
        try:
            for item in read(index):
                if progress.error is not None:
                    return
                yield item
        except (RunError, UsageError) as error:
            progress.error = error

    def make_source(index: tf.Tensor) -> tf.data.Dataset:
        """Return the dataset of the elements of the source of this number."""
        return from_generator(read_until_error, signature, (index,), name="read")

    items = tf.data.Dataset.range(sources).interleave(
        make_source,
        cycle_length=min(readers, sources),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    return without_tuning_thread(items)


@without_autograph
def map_in_order(
    dataset: tf.data.Dataset, function: Callable[..., Any], settings: InputConfig, name: str
) -> tf.data.Dataset:
    """Return a dataset of a function's results, made in parallel, in the order of the elements.

    Args:
        dataset: The dataset of the arguments.
        function: Called with the components of an element; returns tensors.
        settings: The parallelism.
        name: The name of the stage in a profile.
    """
    calls = settings.map_parallelism
    return dataset.map(function, num_parallel_calls=calls, deterministic=True, name=name)


def without_tuning_thread(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Return the dataset without the thread that tunes tf.data's parameters.

    In TensorFlow 2.21 an iterator that is deleted waits until that thread wakes, which takes longer
    and longer: 4 seconds after an epoch of 8 seconds, up to a minute later. Without the thread,
    AUTOTUNE means as many parallel calls as there are threads. A prefetch still finds its own
    depth.

    Args:
        dataset: The dataset; datasets made from the result have no such thread either.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


@contextlib.contextmanager
def raise_read_errors(progress: reading.Progress) -> Iterator[None]:
    """Raise the error that ended a dataset early, at the end of the `with` block, if there is one.

    It replaces any other error of the `with` block.

    Args:
        progress: State of the sources of the dataset.
    """
    try:
        yield
    finally:
        if progress.error is not None:
            raise progress.error


def split_documents(text: tf.Tensor, documents: str) -> tf.Tensor:
    """Return the documents of a block, (N,) strings, N at least 1.

    With "line", each line is a document: an empty line is an empty one, and so is the rest after
    the last line end. With "file" and "none", the whole block is one document.

    Args:
        text: The text of a block, a string scalar.
        documents: Value of --documents: "line", "file" or "none".
    """
    if documents == "line":
        return tf.strings.split(text, "\n")
    return text[tf.newaxis]
