"""Text whose words have no ids yet: each block's distinct words, and its tokens as places in those.

What does not depend on rows is made in parallel ahead of the steps; see `tasks.words.growing_words`
for what has to wait for its turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from ..config import CorpusConfig, InputConfig
from ..text.blocks import block_dataset, split_documents, without_autograph, without_tuning_thread
from ..text.reading import Progress
from ..text.tokenize import drop_long_tokens, make_splitter
from . import token_rows
from .tokens import encode


class TextBlock(NamedTuple):
    """A block of text.

    words_U: its distinct words, strings, in order of appearance. counts_U: how often it has them,
    int64. tokens_M: all its words, as places in words_U, int32. documents_M: numbers of their
    documents, which do not fall, int64. dropped: how many tokens were too long, int64.
    """

    words_U: tf.Tensor
    counts_U: tf.Tensor
    tokens_M: tf.Tensor
    documents_M: tf.Tensor
    dropped: tf.Tensor


@without_autograph
def make_blocks(
    sources: tuple[str, ...],
    corpus: CorpusConfig,
    settings: InputConfig,
    progress: Progress,
    first: int,
) -> tf.data.Dataset:
    """The corpus as `Block`s, without the `first` ones. Iterate inside `text.blocks.raise_read_errors`."""
    texts = block_dataset(
        sources,
        corpus.documents,
        corpus.invalid_utf8,
        progress,
        settings.block_bytes,
        settings.readers,
    )
    found = texts.skip(first).map(
        make_block_parser(corpus), num_parallel_calls=settings.map_parallelism, deterministic=True
    )
    return without_tuning_thread(found.prefetch(settings.prefetch))


def make_block_parser(corpus: CorpusConfig) -> Callable[[tf.Tensor], TextBlock]:
    """From the text of a block, a string scalar of valid UTF-8, to its `Block`."""
    split = make_splitter(corpus)

    def of_text(text: tf.Tensor) -> TextBlock:
        words, dropped = drop_long_tokens(split(split_documents(text, corpus.documents)))
        distinct, tokens, counts = tf.unique_with_counts(words.flat_values)
        return TextBlock(distinct, tf.cast(counts, tf.int64), tokens, words.value_rowids(), dropped)

    return of_text


def make_block_rows(window: int, settings: InputConfig, seed: int) -> Callable[..., tf.Tensor]:
    """A compiled function that gives the rows of a block, (R, L) int32, see `pipeline.make_epoch_rows`.

    Called with the epoch and the number of the block in it, int64; what id each distinct word has,
    (U,) int32, and its chance to be kept, (U,) float32, 0 for one without an id; and the block's
    tokens_M and documents_M.
    """

    def rows_of(
        epoch: tf.Tensor,
        number: tf.Tensor,
        ids_U: tf.Tensor,
        chances_U: tf.Tensor,
        tokens_M: tf.Tensor,
        documents_M: tf.Tensor,
    ) -> tf.Tensor:
        def drawn(stream: int) -> tf.Tensor:
            return token_rows.block_seed(seed, stream, epoch, number)

        uniform_M = tf.random.stateless_uniform(tf.shape(tokens_M), drawn(token_rows.SUBSAMPLE))
        kept_M = uniform_M < tf.gather(chances_U, tokens_M)
        ids = tf.gather(ids_U, tf.boolean_mask(tokens_M, kept_M))
        first = token_rows.differs_from_previous(tf.boolean_mask(documents_M, kept_M))
        return token_rows.split_into_rows(
            encode(ids, first), window, settings, drawn(token_rows.SHUFFLE)
        )

    number = tf.TensorSpec([], tf.int64)
    dtypes = tf.int32, tf.float32, tf.int32, tf.int64
    specs = [tf.TensorSpec([None], dtype) for dtype in dtypes]
    return tf.function(rows_of, autograph=False).get_concrete_function(number, number, *specs)
