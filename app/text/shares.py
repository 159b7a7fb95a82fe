"""Shares of a corpus: every process of a team reads blocks of its own.

The blocks of a corpus are dealt in turn. The end of a block is found from its last bytes, so a
process reads the blocks of its share and little else. Files that are compressed, in UTF-16 or of
columns cannot be read from the middle: if there is one, every process reads all text, and drops the
blocks of other shares.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import tensorflow as tf

from ..errors import RunError
from ..settings import CorpusConfig, InputConfig
from ..system.files import BYTE_ORDER_MARK
from ..types import Team
from . import reading
from .blocks import block_dataset, interleave_sources, without_autograph
from .columns import is_cuttable

_TAIL_BYTES = 4096  # of a block, in which its end is looked for first


class Share(NamedTuple):
    """Every `total`-th block of a corpus, starting at block `number`.

    Attributes:
        number: First block of the share.
        total: Number of shares.
    """

    number: int = 0
    total: int = 1


ALL = Share()


def share_of(team: Team) -> Share:
    """Return the blocks that a process of a team reads.

    Args:
        team: The processes, of which this is number `team.number`.
    """
    return Share(team.number, len(team.names))


@without_autograph
def share_dataset(
    sources: tuple[str, ...],
    corpus: CorpusConfig,
    settings: InputConfig,
    progress: reading.Progress,
    share: Share = ALL,
) -> tf.data.Dataset:
    """Return a dataset of the blocks of a share, string scalars, in the order of the corpus.

    It has the blocks of `blocks.block_dataset`, with the same numbers, and ends early and without a
    message for the same reasons.

    Args:
        sources: Paths of the files.
        corpus: How to divide the text into documents, and what to do with invalid UTF-8.
        settings: Largest size of a block, and number of sources to read at a time.
        progress: State of these sources; updated while they are read.
        share: Blocks to return.
    """
    if share == ALL or not all(is_cuttable(path, corpus.text_column) for path in sources):
        blocks = block_dataset(sources, corpus, settings, progress)
        return blocks.shard(share.total, share.number)

    def read(_: int) -> Iterator[bytes]:
        """Yield the text of each block of the share."""
        positions = find_blocks(sources, corpus.documents, settings)
        progress.replaced[:] = [0] * len(sources)
        for source, offset, size in positions[share.number :: share.total]:
            text = _read_span(sources[source], offset, size)
            how = corpus.invalid_utf8, sources[source], offset
            block, replaced = reading.to_valid_utf8(text, *how)
            progress.replaced[source] += replaced
            progress.positions[source] = offset + size
            yield block

    return interleave_sources(1, read, tf.TensorSpec([], tf.string), progress, 1)


def find_blocks(
    sources: tuple[str, ...], documents: str, settings: InputConfig
) -> list[tuple[int, int, int]]:
    """Return the position of each block of a corpus, from the last bytes of each block.

    A position is the number of the source, the offset of the first byte, and the number of bytes.
    The blocks and their order are equal to those of `blocks.block_dataset`.

    Args:
        sources: Paths of the files, each `is_cuttable`.
        documents: Value of --documents.
        settings: Largest size of a block, and number of sources to read at a time.

    Raises:
        RunError: A source cannot be read.
    """
    # As tf.data interleaves them. Its own datasets would need threads that wait for one another,
    # as this function is called within one.
    upcoming = iter(range(len(sources)))
    spans_of: list[Iterator[tuple[int, int, int]] | None]
    spans_of = [
        _file_spans(sources, number, documents, settings.block_bytes)
        for number in itertools.islice(upcoming, settings.readers)
    ]
    found, place = [], 0
    while any(spans_of):
        spans = spans_of[place]
        span = next(spans, None) if spans else None
        if span is not None:
            found.append(span)
        elif spans:
            number = next(upcoming, None)
            spans_of[place] = (
                None
                if number is None
                else _file_spans(sources, number, documents, settings.block_bytes)
            )
        place = (place + 1) % len(spans_of)
    return found


def _file_spans(
    sources: tuple[str, ...], number: int, documents: str, block_bytes: int
) -> Iterator[tuple[int, int, int]]:
    """Yield the position of each block of a source, as `reading.raw_blocks` cuts it."""
    with reading.open_source(sources[number]) as file:
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
