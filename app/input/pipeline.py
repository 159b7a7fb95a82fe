"""From text to the rows of tokens that a call of the training function takes.

Every block of text goes its way alone: tokens, ids, subsampling, rows and their order are functions
of the block, its number, the epoch and the seed. So blocks are made in parallel in any order, and
come out the same in every run.

Where a step has several micro-batches, each has a share of the blocks, dealt to them in turn: a
process tokenises the blocks of its own micro-batches only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ..config import CorpusConfig, InputConfig
from ..text.blocks import block_dataset, split_documents, without_autograph, without_tuning_thread
from ..text.reading import Progress
from ..text.tokenize import make_splitter
from ..text.vocabulary import Vocabulary, lookup_table
from .tokens import PAD, decode, encode

SUBSAMPLE, SHUFFLE = 11, 12  # streams of random numbers, apart from those of a step

# From the number of an epoch, int64, to rows (R, L) int32, a tensor for each block of text.
EpochRows = Callable[[tf.Tensor], tf.data.Dataset]


class Share(NamedTuple):
    """Every `of`-th block of a corpus, from the one of this number on."""

    number: int = 0
    of: int = 1

    def block(self, place: tf.Tensor) -> tf.Tensor:
        """The number, among all, of the block at a place of the share."""
        return place * self.of + self.number


ALL = Share()


def token_blocks(
    sources: tuple[str, ...],
    vocabulary: Vocabulary,
    corpus: CorpusConfig,
    settings: InputConfig,
    progress: Progress,
    share: Share = ALL,
) -> tf.data.Dataset:
    """A share of the corpus as blocks of tokens (see `input.tokens`), (M,) int32.

    Unknown words are left out. Iterate inside `text.blocks.raise_read_errors(progress)`.
    """
    of_block = make_block_tokenizer(corpus, lookup_table(vocabulary).lookup)
    return map_blocks(sources, corpus, settings, progress, of_block, share)


@without_autograph
def map_blocks(
    sources: tuple[str, ...],
    corpus: CorpusConfig,
    settings: InputConfig,
    progress: Progress,
    of_block: Callable[[tf.Tensor], tf.Tensor],
    share: Share = ALL,
) -> tf.data.Dataset:
    """A share of the corpus, as blocks of what `of_block` makes of a block's text, a scalar."""
    blocks = block_dataset(
        sources,
        corpus.documents,
        corpus.invalid_utf8,
        progress,
        settings.block_bytes,
        settings.readers,
    )
    return blocks.shard(share.of, share.number).map(
        of_block,
        num_parallel_calls=settings.map_parallelism,
        deterministic=True,
        name="tokenize",
    )


def make_block_tokenizer(
    corpus: CorpusConfig, lookup: Callable[[tf.Tensor], tf.Tensor]
) -> Callable[[tf.Tensor], tf.Tensor]:
    """From the text of a block, a string scalar of valid UTF-8, to its tokens, (M,) int32.

    lookup: from words (N,) to ids (N,) int32, below zero for an unknown one.
    """
    # A token that is too long is in no vocabulary, so it is left out with the unknown ones.
    split = make_splitter(corpus)

    def tokens(text: tf.Tensor) -> tf.Tensor:
        words = split(split_documents(text, corpus.documents))
        ids = lookup(words.flat_values)
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
    """From an epoch to the rows of each block in it.

    blocks: of tokens, (M,) int32, those of the share. keep_V: the chance of an id to be kept,
    float32. A row has T centres and `window` tokens on both sides; every kept token is a centre
    once. Rows do not reach over the end of a block.
    """
    of_block = make_block_rows(keep_V, window, settings, seed)

    def epoch_rows(epoch: tf.Tensor) -> tf.data.Dataset:
        return blocks.enumerate().map(
            lambda place, tokens: of_block(epoch, share.block(place), tokens),
            num_parallel_calls=settings.map_parallelism,
            deterministic=True,
            name="rows",
        )

    return epoch_rows


def make_block_rows(
    keep_V: np.ndarray, window: int, settings: InputConfig, seed: int
) -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]:
    """From an epoch and the number of a block in it, int64, and its tokens to its rows: see `rows`.

    Only the part of keep_V below 1 goes into the graph: the most frequent words, as a rule.
    """
    below = np.flatnonzero(keep_V < 1).max(initial=-1) + 1
    keep = tf.constant(np.append(keep_V[:below], np.float32(1)))

    def rows_of(epoch: tf.Tensor, number: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
        kept = _subsample(tokens, keep, block_seed(seed, SUBSAMPLE, epoch, number))
        return split_into_rows(kept, window, settings, block_seed(seed, SHUFFLE, epoch, number))

    return rows_of


def split_into_rows(
    tokens_N: tf.Tensor, window: int, settings: InputConfig, seed: tf.Tensor
) -> tf.Tensor:
    """The rows (see `rows`) of a block's tokens that were kept, in the order of a batch."""
    rows_RL = _rows(tokens_N, settings.row_tokens, window)
    if settings.shuffle:
        keys_R = tf.random.stateless_uniform(tf.shape(rows_RL)[:1], seed)
        rows_RL = tf.gather(rows_RL, tf.argsort(keys_R))
    return rows_RL


def block_seed(seed: int, stream: int, epoch: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """The seed, (2,) int64, of one kind of draw for the block of this number in an epoch."""
    return tf.stack([seed + (stream << 40), epoch * (1 << 32) + number])


@without_autograph
def make_batches(
    streams: Sequence[EpochRows | None],
    epochs: range,
    first: int,
    halo: int,
    settings: InputConfig,
) -> tf.data.Dataset:
    """The batches of some epochs: the epoch's number, int64, and what S steps train on.

    streams: the rows of each micro-batch of a step (see `rows`); None for one that is another
    process's, which is left empty. epochs: one after the other. first: batches of the first one
    that are left out. halo: L - T. A batch is (S, B, L) int32, micro-batches one after the other in
    its second dimension; where the rows of one of them are at their end, it is filled up by `PAD`.
    One epoch follows the other in the same pipeline, so that no step waits for a pipeline to be
    built.
    """
    steps, length = settings.steps_per_call, settings.row_tokens + halo
    count = settings.batch_tokens // settings.row_tokens // len(streams)

    def fill(batch: tf.Tensor) -> tf.Tensor:
        missing = steps * count - tf.shape(batch)[0]
        filled = tf.pad(batch, [[0, missing], [0, 0]], constant_values=PAD)
        return tf.reshape(filled, (steps, count, length))

    def epoch_batches(epoch: tf.Tensor) -> tf.data.Dataset:
        left_out = tf.where(epoch == epochs.start, tf.constant(first, tf.int64), 0)
        found = [
            None if rows is None else rows(epoch).rebatch(steps * count).map(fill, name="fill")
            for rows in streams
        ]
        found = [None if stream is None else stream.skip(left_out) for stream in found]
        joined = _side_by_side(found, tf.fill((steps, count, length), PAD))
        return joined.map(lambda batch: (epoch, batch))

    numbers = tf.data.Dataset.range(epochs.start, epochs.stop, name="epochs")
    found = numbers.flat_map(epoch_batches, name="epochs").prefetch(settings.prefetch, name="ahead")
    return without_tuning_thread(found)


def _side_by_side(streams: Sequence[tf.data.Dataset | None], empty: tf.Tensor) -> tf.data.Dataset:
    """Tensors of several datasets, joined along their second dimension, until the last one ends.

    empty: in place of those that have ended, or are None.
    """
    if len(streams) == 1 and streams[0] is not None:
        return streams[0]
    endless = tf.data.Dataset.from_tensors((False, empty)).repeat()
    told = [
        endless
        if stream is None
        else stream.map(lambda tensor: (True, tensor)).concatenate(endless)
        for stream in streams
    ]
    rows = tf.data.Dataset.zip(tuple(told))
    rows = rows.take_while(lambda *found: tf.reduce_any([real for real, _ in found]))
    return rows.map(lambda *found: tf.concat([tensor for _, tensor in found], axis=1), name="join")


def keep_probability(counts: np.ndarray, subsample: float, total: int | None = None) -> np.ndarray:
    """The chance of each id to be kept, (V,) float32; `subsample` 0 keeps all.

    total: of all ids, where counts are those of some.

    sqrt(s / f) + s / f for an id that is a share f of the corpus, as word2vec.c and gensim have it
    (the paper, Mikolov et al. 2013b, equation 5, has sqrt(s / f)).
    """
    if not subsample:
        return np.ones(len(counts), np.float32)
    ratio = subsample * (counts.sum() if total is None else total) / counts
    return np.minimum(np.sqrt(ratio) + ratio, 1.0).astype(np.float32)


def estimate_batches(
    counts: np.ndarray, keep_V: np.ndarray, settings: InputConfig, blocks: int = 0
) -> int:
    """About how many batches an epoch of so many blocks has: at least 1."""
    # A block's last row is half full, as things go.
    rows = float((counts * keep_V).sum()) / settings.row_tokens + blocks / 2
    batch_rows = settings.steps_per_call * settings.batch_tokens // settings.row_tokens
    return max(1, math.ceil(rows / batch_rows * share_imbalance(blocks, settings)))


def share_imbalance(blocks: int, settings: InputConfig) -> float:
    """The largest share of so many blocks, over the mean of those of the micro-batches."""
    micro = settings.micro_batches or 1
    return -(-blocks // micro) * micro / max(blocks, 1) or 1.0


def _subsample(tokens_M: tf.Tensor, keep_N: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """The tokens kept by chance: keep_N of an id, its last entry that of all further ids."""
    decoded = decode(tokens_M[tf.newaxis])
    ids, documents = decoded.ids[0], decoded.document[0]
    chances = tf.gather(keep_N, tf.minimum(ids, tf.shape(keep_N)[0] - 1))
    kept = tf.random.stateless_uniform(tf.shape(ids), seed) < chances
    return encode(
        tf.boolean_mask(ids, kept), differs_from_previous(tf.boolean_mask(documents, kept))
    )


def _rows(tokens_N: tf.Tensor, centres: int, window: int) -> tf.Tensor:
    """The tokens as rows with a halo: (rows, centres + 2 window), filled up by `PAD`."""
    size = tf.shape(tokens_N)[0]
    count = -(-size // centres)
    ends = [window, window + count * centres - size]
    padded = tf.pad(tokens_N, [ends], constant_values=PAD)
    starts = tf.range(count) * centres
    return tf.gather(padded, starts[:, tf.newaxis] + tf.range(centres + 2 * window))


def differs_from_previous(values_N: tf.Tensor) -> tf.Tensor:
    """Whether each value differs from the one before it; the first does: (N,) bool."""
    return tf.concat([tf.ones_like(values_N[:1], tf.bool), values_N[1:] != values_N[:-1]], axis=0)
