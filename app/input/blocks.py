"""Divide a corpus into blocks, of which every process of a team reads its own share.

The blocks of a corpus are dealt in turn. The end of a block is found from its last bytes, so a
process reads the blocks of its share and little else. Files that are compressed, in UTF-16 or of
columns cannot be read from the middle: if there is one, every process reads all text, and drops the
blocks of other shares.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, NamedTuple

import tensorflow as tf

from ..errors import RunError, UsageError
from ..settings import CorpusConfig, InputConfig
from ..system.files import BYTE_ORDER_MARK
from ..system.python_functions import from_generator
from ..text import columns, reading
from ..text.reading import is_cuttable
from ..types import Team

_TAIL_BYTES = 4096  # of a block, in which its end is looked for first
# Decorator for functions that make datasets. Without it, tf.data lets autograph rewrite the
# functions of maps, tensorflow_text's included, which takes a second or two. None of them branches
# on a tensor, so autograph has nothing to do.
without_autograph = tf.autograph.experimental.do_not_convert


class TextFiles(NamedTuple):
    """The files of a text, and how they are read.

    Attributes:
        paths: The paths of the files.
        corpus: How they become documents and tokens.
        settings: How they are divided into blocks, and how many files are read at once.
    """

    paths: tuple[str, ...]
    corpus: CorpusConfig
    settings: InputConfig


class Share(NamedTuple):
    """Every `total`-th block of a corpus, starting at block `number`.

    Attributes:
        number: First block of the share.
        total: Number of shares.
    """

    number: int = 0
    total: int = 1


ALL = Share()


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


def take_ahead(take: Callable[[], Any], name: str) -> Iterator[Any]:
    """Yield the results of a function until it returns None.

    A thread of the given name makes the next call meanwhile.
    """
    with ThreadPoolExecutor(1, name) as thread:
        following = thread.submit(take)
        while (item := following.result()) is not None:
            following = thread.submit(take)
            yield item


@contextlib.contextmanager
def raise_read_errors(progress: reading.Progress) -> Iterator[None]:
    """Raise the error that ended a dataset early, at the end of the `with` block, if there is one.

    It replaces any other error of the `with` block.
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


def share_of(team: Team) -> Share:
    """Return the blocks that a process of a team reads.

    Args:
        team: The processes, of which this is number `team.number`.
    """
    return Share(team.number, len(team.names))


@without_autograph
def share_dataset(
    files: TextFiles, progress: reading.Progress, share: Share = ALL
) -> tf.data.Dataset:
    """Return a dataset of the blocks of a share, string scalars, in the order of the corpus.

    The blocks are those of `columns.read_text` of every source. Files are read only when the
    dataset is iterated. The blocks of --readers sources are taken in turn. The order depends only
    on the arguments. No document continues in another block: a document longer than a block becomes
    documents of a block each, cut at white space. That loses the word pairs across the cut, at most
    window (window + 1) per block; a MiB of text has about a million.

    A source that cannot be read ends the dataset early and without a message, since tf.data would
    print tracebacks. So iterate inside `raise_read_errors`.
    """
    paths, corpus, settings = files
    signature = tf.TensorSpec([], tf.string)

    def read_source(index: int) -> Iterator[bytes]:
        """Return an iterator over the blocks of the source of this number."""
        return columns.read_text(paths[index], corpus, settings.block_bytes, progress, index)

    if share == ALL or not all(is_cuttable(path, corpus.text_column) for path in paths):
        readers = signature, progress, settings.readers
        blocks = interleave_sources(len(paths), read_source, *readers)
        return blocks.shard(share.total, share.number)

    def read_share(_: int) -> Iterator[bytes]:
        """Yield the text of each block of the share, without those of others."""
        positions = find_blocks(files)
        progress.replaced[:] = [0] * len(paths)
        for source, offset, size in positions[share.number :: share.total]:
            text = _read_span(paths[source], offset, size)
            how = corpus.invalid_utf8, paths[source], offset
            block, replaced = reading.to_valid_utf8(text, *how)
            progress.replaced[source] += replaced
            progress.positions[source] = offset + size
            yield block

    return interleave_sources(1, read_share, signature, progress, 1)


def find_blocks(files: TextFiles) -> list[tuple[int, int, int]]:
    """Return the position of each block of a corpus, from the last bytes of each block.

    A position is the number of the source, the offset of the first byte, and the number of bytes.
    The blocks and their order are equal to those of `share_dataset`.

    Args:
        files: Files, each of them `is_cuttable`.

    Raises:
        RunError: A source cannot be read.
    """
    # As tf.data interleaves them. Its own datasets would need threads that wait for one another,
    # as this function is called within one.
    waiting = (_file_spans(files, number) for number in range(len(files.paths)))
    opened: list[Iterator | None] = list(itertools.islice(waiting, files.settings.readers))
    found, place = [], 0
    while any(opened):
        if spans := opened[place]:
            span = next(spans, None)
            if span is None:
                opened[place] = next(waiting, None)
            else:
                found.append(span)
        place = (place + 1) % len(opened)
    return found


def _file_spans(files: TextFiles, number: int) -> Iterator[tuple[int, int, int]]:
    """Yield the position of each block of a source, as `reading.raw_blocks` cuts it."""
    documents, block_bytes = files.corpus.documents, files.settings.block_bytes
    with reading.open_source(files.paths[number]) as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(0)
        offset = len(BYTE_ORDER_MARK) * (file.read(len(BYTE_ORDER_MARK)) == BYTE_ORDER_MARK)
        while offset + block_bytes <= end:
            size = _block_size(file, offset, documents, block_bytes)
            yield number, offset, size
            offset += size
        if offset < end:
            yield number, offset, end - offset


def _block_size(file: BinaryIO, offset: int, documents: str, block_bytes: int) -> int:
    """Return the size of the block at an offset, after which there are `block_bytes` or more."""
    before = max(block_bytes - _TAIL_BYTES, 0)
    file.seek(offset + before)
    tail = file.read(block_bytes - before)
    if (tail.rfind(b"\n") if documents == "line" else reading.last_white_space(tail)) >= 0:
        return before + reading.block_length(tail, documents)
    file.seek(offset)
    return reading.block_length(file.read(block_bytes), documents)


def _read_span(path: str, offset: int, size: int) -> bytes:
    """Return bytes of a file; raise RunError if it has become shorter."""
    with reading.open_source(path) as file:
        file.seek(offset)
        text = file.read(size)
    if len(text) < size:
        raise RunError(f"{path} has become shorter while it was read; give a file that stays")
    return text


def check_blocks(blocks: Sequence[int], files: TextFiles, team: Team) -> None:
    """Raise UsageError if the text has no block for a process; the message names the processes.

    Args:
        blocks: The number of blocks in the share of each process.
    """
    idle = [name for name, count in zip(team.names, blocks, strict=True) if not count]
    if idle and sum(blocks):
        raise UsageError(
            f"--corpus={files.corpus.corpus}: no text is left for {', '.join(idle)}, as it has "
            f"{sum(blocks)} block(s) of --block_bytes={files.settings.block_bytes} for "
            f"{len(team.names)} workers; lower --block_bytes, or start fewer workers"
        )
