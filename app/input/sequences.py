"""Turn text into rows of consecutive tokens, for a model that carries its state along a text.

Every token of the text is used: a token without an id of its own has the id of `<unk>`, and `<eos>`
follows each document that has a token. The tokens of a block are cut into contiguous streams, and
the streams into rows of T tokens plus the token before them. So each token is predicted once, from
the token before it. The rows of a block depend on the block alone.

A stream begins with an empty state: its first row begins with the bitwise complement of an id (see
`input.token_rows`). The token before the first token of a block is taken to be `<eos>`. The end of
a document does not reset the state; the model learns it from `<eos>`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import tensorflow as tf

from ..settings import CorpusConfig, InputConfig
from ..text.tokenize import make_tokenizer
from ..text.vocabulary import EOS, UNK, Vocabulary, lookup_table
from . import pipeline
from .blocks import map_in_order, split_documents
from .token_rows import PAD


def make_block_tokenizer(
    corpus: CorpusConfig, vocabulary: Vocabulary
) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return a function from the text of a block to its ids (M,) int32.

    Unknown tokens have the id of `<unk>`; too long ones are dropped. `<eos>` follows each document
    that has a token.

    Args:
        vocabulary: Tokens that have an id, with `<unk>` and `<eos>`.

    Raises:
        ValueError: The vocabulary lacks `<unk>` or `<eos>`.
    """
    tokenize, table = make_tokenizer(corpus), lookup_table(vocabulary)
    unknown, end = map(vocabulary.tokens.index, (UNK, EOS))

    def tokenize_block(text: tf.Tensor) -> tf.Tensor:
        """Return the ids (M,) int32 of the text of a block, a string scalar."""
        words = tokenize(split_documents(text, corpus.documents))
        ids = table.lookup(words.flat_values)
        documents = words.with_flat_values(tf.where(ids < 0, unknown, ids))
        documents = tf.ragged.boolean_mask(documents, documents.row_lengths() > 0)
        ends = tf.fill(tf.stack([documents.nrows(), 1]), end)
        return tf.concat([documents, tf.cast(ends, tf.int32)], axis=1).flat_values

    return tokenize_block


def make_epoch_rows(
    blocks: tf.data.Dataset, share: float, end: int, settings: InputConfig, heldout: bool = False
) -> pipeline.EpochRows:
    """Return a function from an epoch to its rows, (R, T + 1) int32 per block; epochs are equal.

    B rows of a micro-batch, one of each stream, follow one another; then B rows with the next
    tokens of each stream. R is a multiple of B.

    Args:
        blocks: Dataset of ids (M,) int32.
        share: Share of each block that is held out: the last floor(share M) of its M tokens.
        end: The id of `<eos>`.
        heldout: Whether the rows are those of the held-out tokens, not of the others.
    """

    def block_rows(ids_M: tf.Tensor) -> tf.Tensor:
        """Return the rows of a block; before held-out ids comes the last trained one."""
        size = tf.size(ids_M)
        trained = size - tf.cast(tf.cast(size, tf.float64) * share, tf.int32)
        if not heldout:
            return _rows(ids_M[:trained], end, settings)
        return _rows(ids_M[trained:], tf.concat([[end], ids_M], axis=0)[trained], settings)

    return lambda epoch: map_in_order(blocks, block_rows, settings, "rows")


def estimate_batches(tokens: int, settings: InputConfig, blocks: int) -> int:
    """Return the approximate number of batches of an epoch, at least 1."""
    # On average the last rows of a block are half full.
    steps = tokens * (1 - heldout_share(settings)) / settings.batch_tokens + blocks / 2
    steps *= pipeline.share_imbalance(blocks, settings)
    return max(1, math.ceil(steps / settings.steps_per_call))


def heldout_share(settings: InputConfig) -> float:
    """Return the share of every block that is held out from training: 0 with files of --heldout.

    Args:
        settings: Has --heldout, which replaces --heldout_share.
    """
    return 0.0 if settings.heldout else settings.heldout_share


def _rows(ids_M: tf.Tensor, before: int | tf.Tensor, settings: InputConfig) -> tf.Tensor:
    """Return ids as rows of B streams, (rows, T + 1) int32, filled with `PAD`.

    Row i of each of the B streams comes before row i + 1 of any. All streams have the same number
    of rows, so the last streams may have fewer ids or none. The first id of a stream is stored as
    its complement.

    Args:
        ids_M: Ids of a block, int32.
        before: The id before the first.
    """
    length = settings.row_tokens
    streams = settings.micro_tokens // length
    size = tf.size(ids_M)
    count = -(-size // (streams * length))  # rows of a stream
    ids = tf.concat([[before], ids_M, tf.fill([count * streams * length - size], PAD)], axis=0)
    starts_RB = tf.range(count)[:, tf.newaxis] * length
    starts_RB += tf.range(streams) * count * length
    rows_RBL = tf.gather(ids, starts_RB[:, :, tf.newaxis] + tf.range(length + 1))
    begin_RB1 = tf.range(count)[:, tf.newaxis, tf.newaxis] == 0
    first_RB1 = rows_RBL[:, :, :1]
    first_RB1 = tf.where(begin_RB1 & (first_RB1 != PAD), ~first_RB1, first_RB1)
    return tf.reshape(tf.concat([first_RB1, rows_RBL[:, :, 1:]], axis=2), (-1, length + 1))
