"""Turn a corpus into batches of token rows for word models."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..settings import CorpusConfig, InputConfig
from ..text.phrase_table import Phrases, make_joiner, make_phrase_splitter
from ..text.reading import Progress
from ..text.tokenize import drop_long_tokens, make_splitter
from ..text.vocabulary import Vocabulary, lookup_table
from .blocks import (
    ALL,
    Share,
    TextFiles,
    map_in_order,
    share_dataset,
    split_documents,
    without_autograph,
    without_tuning_thread,
)
from .token_rows import PAD, differs_from_previous, encode, make_block_rows

# Function from the number of an epoch, int64, to a dataset of rows (R, L) int32, one per block.
EpochRows = Callable[[tf.Tensor], tf.data.Dataset]


def map_blocks(
    files: TextFiles,
    progress: Progress,
    process: Callable[[tf.Tensor], Any],
    share: Share = ALL,
    first: int = 0,
) -> tf.data.Dataset:
    """Return a dataset of `process(text)` for each block of a share of the corpus, in order.

    Only the blocks of the share are read, unless a file is compressed. Iterate inside
    `input.blocks.raise_read_errors(progress)`.

    Args:
        process: Function from the text of a block, a string scalar, to tensors, such as the
            result of `make_block_tokenizer`.
        first: Number of these blocks to skip.
    """
    blocks = share_dataset(files, progress, share).skip(first)
    return map_in_order(blocks, process, files.settings, "tokenize")


def make_block_tokenizer(
    corpus: CorpusConfig, vocabulary: Vocabulary, phrases: Phrases = ()
) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return a function from the text of a block to its tokens, without unknown words.

    Args:
        vocabulary: Tokens that have an id.

    Returns:
        Function from valid UTF-8, a string scalar, to tokens (M,) int32 (see `input.token_rows`).
    """
    # No vocabulary has a token that is too long, so it is dropped with the unknown words.
    split, table = make_phrase_splitter(corpus, phrases), lookup_table(vocabulary)

    def tokens(text: tf.Tensor) -> tf.Tensor:
        """Return the tokens (M,) int32 of the text of a block."""
        words = split(split_documents(text, corpus.documents))
        ids = table.lookup(words.flat_values)
        known = ids >= 0
        documents = tf.boolean_mask(words.value_rowids(), known)
        return encode(tf.boolean_mask(ids, known), differs_from_previous(documents))

    return tokens


def make_epoch_rows(
    blocks: tf.data.Dataset,
    keep_V: np.ndarray,
    window: int,
    settings: InputConfig,
    seed: int,
    share: Share = ALL,
) -> EpochRows:
    """Return a function from an epoch to the dataset of its rows, (R, L) int32 for each block.

    A row has T centres with a halo of `window` tokens on each side. Each kept token is a centre
    once. Rows do not cross block boundaries.

    Args:
        blocks: Dataset of tokens (M,) int32, the blocks of `share`.
        keep_V: Probability that a token of each id is kept, (V,) float32.
        share: Blocks that the dataset has.
    """
    first, total = share
    make_rows = make_block_rows(keep_V, window, settings, seed)

    def epoch_rows(epoch: tf.Tensor) -> tf.data.Dataset:
        """Return the rows of each block in an epoch, in the order of the blocks."""

        def block_rows(position: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
            """Return the rows of the block at a position."""
            return make_rows(epoch, first + position * total, tokens)

        return map_in_order(blocks.enumerate(), block_rows, settings, "rows")

    return epoch_rows


@without_autograph
def make_batches(
    streams: Sequence[EpochRows], epochs: range, first: int, halo: int, settings: InputConfig
) -> tf.data.Dataset:
    """Return a dataset of (epoch, batch) over several epochs.

    A batch is (S, B, L) int32, for S steps. Micro-batches follow one another in the second
    dimension. The last batch of an epoch, and a micro-batch that has no more rows, is filled with
    `PAD`. All epochs share one pipeline, so no step waits for a new pipeline to start.

    Args:
        streams: For each micro-batch that this process makes, a function from the epoch to its
            rows.
        first: Number of batches to skip in the first epoch.
        halo: L - T, the number of tokens of a row that are not centres.
    """
    steps, length = settings.steps_per_call, settings.row_tokens + halo
    count = settings.micro_tokens // settings.row_tokens

    def fill(batch: tf.Tensor) -> tf.Tensor:
        """Return up to S B rows as (S, B, L), filled up with `PAD`; B is that of a micro-batch."""
        missing = steps * count - tf.shape(batch)[0]
        filled = tf.pad(batch, [[0, missing], [0, 0]], constant_values=PAD)
        return tf.reshape(filled, (steps, count, length))

    def epoch_batches(epoch: tf.Tensor) -> tf.data.Dataset:
        """Return a dataset of (epoch, batch) of one epoch."""
        skipped = tf.where(epoch == epochs.start, tf.constant(first, tf.int64), 0)
        datasets = [
            rows(epoch).rebatch(steps * count).map(fill, name="fill").skip(skipped)
            for rows in streams
        ]
        joined = _side_by_side(datasets, tf.fill((steps, count, length), PAD))
        return joined.map(lambda batch: (epoch, batch))

    numbers = tf.data.Dataset.range(epochs.start, epochs.stop, name="epochs")
    tokens = numbers.flat_map(epoch_batches, name="epochs").prefetch(
        settings.prefetch, name="ahead"
    )
    return without_tuning_thread(tokens)


def _side_by_side(streams: Sequence[tf.data.Dataset], empty: tf.Tensor) -> tf.data.Dataset:
    """Concatenate the elements of datasets along the second dimension until the longest ends.

    Args:
        streams: Datasets of tensors of the shape of `empty`. A single one is returned as it is.
        empty: Used for streams that have ended.
    """
    if len(streams) == 1:
        return streams[0]
    endless = tf.data.Dataset.from_tensors((False, empty)).repeat()
    marked = [stream.map(lambda tensor: (True, tensor)).concatenate(endless) for stream in streams]
    rows = tf.data.Dataset.zip(tuple(marked))
    rows = rows.take_while(lambda *parts: tf.reduce_any([real for real, _ in parts]))
    return rows.map(lambda *parts: tf.concat([tensor for _, tensor in parts], axis=1), name="join")


def estimate_batches(
    counts: np.ndarray, keep_V: np.ndarray, settings: InputConfig, blocks: int = 0
) -> int:
    """Return the approximate number of batches of an epoch, at least 1.

    Args:
        counts: Occurrences of each id, (V,).
        keep_V: Probability that a token of each id is kept, (V,).
    """
    # On average the last row of a block is half full.
    rows = float((counts * keep_V).sum()) / settings.row_tokens + blocks / 2
    batch_rows = settings.steps_per_call * settings.batch_tokens // settings.row_tokens
    return max(1, math.ceil(rows / batch_rows * share_imbalance(blocks, settings)))


def share_imbalance(blocks: int, settings: InputConfig) -> float:
    """Return the size of the largest share of the blocks divided by the mean size, at least 1.

    Without blocks it is 1.

    Args:
        settings: Has the number of micro-batches, each of which owns a share.
    """
    micro = settings.micro_batches or 1
    return -(-blocks // micro) * micro / max(blocks, 1) or 1.0


class TextBlock(NamedTuple):
    """The words of a block of text.

    Attributes:
        words_U: Unique words, strings, in order of appearance.
        counts_U: Occurrences of each in the block, int64.
        tokens_M: All words of the block, as positions in `words_U`, int32.
        splits_D: Position of the first token of each document, and the end of the last, int64.
        dropped: Number of tokens that were too long, int64.
    """

    words_U: tf.Tensor
    counts_U: tf.Tensor
    tokens_M: tf.Tensor
    splits_D: tf.Tensor
    dropped: tf.Tensor


def make_block_parser(
    corpus: CorpusConfig, phrases: Phrases = ()
) -> Callable[[tf.Tensor], TextBlock]:
    """Return a function from the text of a block, valid UTF-8, to its `TextBlock`."""
    split, join = make_splitter(corpus), make_joiner(phrases)

    def parse(text: tf.Tensor) -> TextBlock:
        """Return the words of the text of a block, a string scalar, without too long ones."""
        words, dropped = drop_long_tokens(split(split_documents(text, corpus.documents)))
        words = join(words)
        words_U, tokens, counts = tf.unique_with_counts(words.flat_values)
        return TextBlock(words_U, tf.cast(counts, tf.int64), tokens, words.row_splits, dropped)

    return parse
