"""Parse text for --table=dynamic: unique words of each block, before words have ids.

Work that does not depend on rows runs in parallel ahead of the steps. The rest must run in block
order; `tasks.words.growing_words` does it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from ..settings import CorpusConfig, InputConfig
from ..text.blocks import split_documents
from ..text.tokenize import drop_long_tokens, make_splitter
from . import token_rows


class TextBlock(NamedTuple):
    """The words of a block of text.

    Attributes:
        words_U: Unique words, strings, in order of appearance.
        counts_U: Occurrences of each in the block, int64.
        tokens_M: All words of the block, as positions in `words_U`, int32.
        documents_M: Number of the document of each token, int64, not descending.
        dropped: Number of tokens that were too long, int64.
    """

    words_U: tf.Tensor
    counts_U: tf.Tensor
    tokens_M: tf.Tensor
    documents_M: tf.Tensor
    dropped: tf.Tensor


def make_block_parser(corpus: CorpusConfig) -> Callable[[tf.Tensor], TextBlock]:
    """Return a function from the text of a block, valid UTF-8, to its `TextBlock`.

    Args:
        corpus: How to split the text.
    """
    split = make_splitter(corpus)

    def parse(text: tf.Tensor) -> TextBlock:
        """Return the words of the text of a block, a string scalar, without too long ones."""
        words, dropped = drop_long_tokens(split(split_documents(text, corpus.documents)))
        words_U, tokens, counts = tf.unique_with_counts(words.flat_values)
        return TextBlock(words_U, tf.cast(counts, tf.int64), tokens, words.value_rowids(), dropped)

    return parse


def make_block_rows(window: int, settings: InputConfig, seed: int) -> Callable[..., tf.Tensor]:
    """Return a traced function that subsamples a block and makes its rows (see `token_rows`).

    The rows are in random order if --shuffle.

    Args:
        window: Tokens of the halo on each side.
        settings: Row length and shuffling.
        seed: Seed of the run.

    Returns:
        Function (epoch, number, ids_U, chances_U, tokens_M, documents_M) -> rows (R, L) int32.
        Epoch and block number are int64 scalars; `ids_U` has the id of each unique word, int32;
        `chances_U` the probability that its tokens are kept, float32, 0 for a word without an id.
    """

    def block_rows(
        epoch: tf.Tensor,
        number: tf.Tensor,
        ids_U: tf.Tensor,
        chances_U: tf.Tensor,
        tokens_M: tf.Tensor,
        documents_M: tf.Tensor,
    ) -> tf.Tensor:
        """Return the rows (R, L) int32 of the tokens that a random draw keeps."""

        def seed_of(stream: int) -> tf.Tensor:
            """Return the seed of this block for a stream of random numbers."""
            return token_rows.block_seed(seed, stream, epoch, number)

        ids_M, chances_M = tf.gather(ids_U, tokens_M), tf.gather(chances_U, tokens_M)
        kept = token_rows.subsample(ids_M, documents_M, chances_M, seed_of(token_rows.SUBSAMPLE))
        return token_rows.split_into_rows(kept, window, settings, seed_of(token_rows.SHUFFLE))

    number = tf.TensorSpec([], tf.int64)
    dtypes = tf.int32, tf.float32, tf.int32, tf.int64
    specs = [tf.TensorSpec([None], dtype) for dtype in dtypes]
    return tf.function(block_rows, autograph=False).get_concrete_function(number, number, *specs)
