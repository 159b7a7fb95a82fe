"""From text to rows of consecutive tokens, for a model that carries its state along a text.

Every token of the text is there: one without an id of its own has that of `<unk>`, and `<eos>`
follows each document that has a token. The tokens of a block of text are cut into contiguous
streams, and those into rows of T tokens with the one before them, so that each token is predicted
once, from the one before it. What a block gives is a function of the block alone.

A stream begins with an empty state: its first row begins with the bitwise complement of an id (see
`input.tokens`). The token before the first one of a block is taken for `<eos>`. Documents do not
end a stream: that is for the model to learn from `<eos>`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import tensorflow as tf

from ..config import CorpusConfig, InputConfig
from ..text.blocks import split_documents, without_autograph
from ..text.reading import Progress
from ..text.tokenize import make_tokenizer
from ..text.vocabulary import EOS, UNK, Vocabulary, lookup_table
from . import pipeline
from .tokens import PAD


def token_blocks(
    sources: tuple[str, ...],
    vocabulary: Vocabulary,
    corpus: CorpusConfig,
    settings: InputConfig,
    progress: Progress,
    share: pipeline.Share = pipeline.ALL,
) -> tf.data.Dataset:
    """A share of the corpus as blocks of ids, (M,) int32.

    vocabulary: with `<unk>` and `<eos>`. Iterate inside `text.blocks.raise_read_errors(progress)`.
    """
    tokenize, table = make_tokenizer(corpus), lookup_table(vocabulary)
    unknown, end = map(vocabulary.tokens.index, (UNK, EOS))

    def of_block(text: tf.Tensor) -> tf.Tensor:
        words = tokenize(split_documents(text, corpus.documents))
        ids = table.lookup(words.flat_values)
        documents = words.with_flat_values(tf.where(ids < 0, unknown, ids))
        documents = tf.ragged.boolean_mask(documents, documents.row_lengths() > 0)
        ends = tf.fill(tf.stack([documents.nrows(), 1]), end)
        return tf.concat([documents, tf.cast(ends, tf.int32)], axis=1).flat_values

    return pipeline.map_blocks(sources, corpus, settings, progress, of_block, share)


def make_epoch_rows(
    blocks: tf.data.Dataset, share: float, end: int, settings: InputConfig
) -> pipeline.EpochRows:
    """From the number of an epoch, int64, to the rows of each block, (R, T + 1) int32.

    blocks: of ids. share: of each block, at its end, that is left out (see `heldout_rows`). end:
    the id of `<eos>`. B rows of a micro-batch, one of each stream, follow one another, then B with
    what comes next in each: R is a multiple of B. Epochs do not differ.
    """

    def of_block(ids_M: tf.Tensor) -> tf.Tensor:
        trained = tf.size(ids_M) - _heldout(ids_M, share)
        return _rows(ids_M[:trained], end, settings)

    return lambda epoch: _mapped(blocks, of_block, settings)


def make_heldout_rows(
    blocks: tf.data.Dataset, share: float, end: int, settings: InputConfig
) -> pipeline.EpochRows:
    """As `rows`, of what those leave out: floor(share M) tokens at the end of a block of M."""

    def of_block(ids_M: tf.Tensor) -> tf.Tensor:
        trained = tf.size(ids_M) - _heldout(ids_M, share)
        before = tf.concat([[end], ids_M], axis=0)[trained]
        return _rows(ids_M[trained:], before, settings)

    return lambda epoch: _mapped(blocks, of_block, settings)


def estimate_batches(tokens: int, settings: InputConfig, blocks: int) -> int:
    """About how many batches an epoch of so many tokens and blocks has: at least 1."""
    # The last rows of a block are half full, as things go.
    steps = tokens * (1 - heldout_share(settings)) / settings.batch_tokens + blocks / 2
    steps *= pipeline.share_imbalance(blocks, settings)
    return max(1, math.ceil(steps / settings.steps_per_call))


def heldout_share(settings: InputConfig) -> float:
    """The share of every block that is not trained on."""
    return 0.0 if settings.heldout else settings.heldout_share


def _heldout(ids_M: tf.Tensor, share: float) -> tf.Tensor:
    """How many of a block's tokens are held out, an int32 scalar."""
    return tf.cast(tf.cast(tf.size(ids_M), tf.float64) * share, tf.int32)


@without_autograph
def _mapped(
    blocks: tf.data.Dataset, of_block: Callable[[tf.Tensor], tf.Tensor], settings: InputConfig
) -> tf.data.Dataset:
    return blocks.map(
        of_block, num_parallel_calls=settings.map_parallelism, deterministic=True, name="rows"
    )


def _rows(ids_M: tf.Tensor, before: int | tf.Tensor, settings: InputConfig) -> tf.Tensor:
    """The ids as rows of B streams, filled up by `PAD`: (rows, T + 1).

    Streams are as long as fills a whole number of rows, so that the last ones may be short or
    empty. before: the id before the first.
    """
    length = settings.row_tokens
    streams = settings.micro_tokens // length
    size = tf.size(ids_M)
    count = -(-size // (streams * length))  # rows of a stream
    padding = count * streams * length - size
    ids = tf.concat([[before], ids_M, tf.fill([padding], PAD)], axis=0)
    starts_RB = tf.range(count)[:, tf.newaxis] * length
    starts_RB += tf.range(streams) * count * length
    rows_RBL = tf.gather(ids, starts_RB[:, :, tf.newaxis] + tf.range(length + 1))
    begin_RB1 = tf.range(count)[:, tf.newaxis, tf.newaxis] == 0
    first_RB1 = rows_RBL[:, :, :1]
    first_RB1 = tf.where(begin_RB1 & (first_RB1 != PAD), ~first_RB1, first_RB1)
    found = tf.concat([first_RB1, rows_RBL[:, :, 1:]], axis=2)
    return tf.reshape(found, (-1, length + 1))
