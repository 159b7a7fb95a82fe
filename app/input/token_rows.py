"""The encoding of tokens in a batch, and the rows of a block: subsampling, halo and order."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ..settings import InputConfig
from ..types import HOST

PAD = 2**31 - 1
SUBSAMPLE, SHUFFLE = 11, 12  # streams of random numbers; the training step uses others


class Decoded(NamedTuple):
    """Token ids of a batch, with masks.

    Attributes:
        ids: Token ids (B, L) int32; 0 where there is no token.
        real: Bool (B, L), true where there is a token.
        document: Number of the document within its row (B, L) int32; 0 if it begins before the row.
    """

    ids: tf.Tensor
    real: tf.Tensor
    document: tf.Tensor


def encode(ids: tf.Tensor, first: tf.Tensor) -> tf.Tensor:
    """Return tokens for ids: `~id` for the first token of a document, else the id.

    Args:
        ids: Token ids (N,) int32.
        first: Bool (N,), true for the first token of a document.

    Returns:
        Tokens (N,) int32.
    """
    return tf.where(first, ~ids, ids)


def decode(tokens_BL: tf.Tensor) -> Decoded:
    """Return ids, mask and document numbers of encoded tokens, computed on the CPU."""
    with tf.device(HOST):
        first = tokens_BL < 0
        real = tokens_BL != PAD
        return Decoded(
            ids=tf.where(real, tf.where(first, ~tokens_BL, tokens_BL), 0),
            real=real,
            document=tf.cumsum(tf.cast(first, tf.int32), axis=1),
        )


def keep_probability(counts: np.ndarray, subsample: float, total: int | None = None) -> np.ndarray:
    """Return the probability that a token of each id is kept by subsampling.

    It is sqrt(s / f) + s / f for an id with frequency f, as in word2vec.c and gensim. (Mikolov et
    al. 2013b, equation 5, has sqrt(s / f).)

    Args:
        counts: Occurrences of each id, (V,).
        subsample: The threshold s; 0 keeps all tokens.
        total: Tokens of the corpus; by default the sum of `counts`.

    Returns:
        Probabilities (V,) float32.
    """
    if not subsample:
        return np.ones(len(counts), np.float32)
    ratio = subsample * (counts.sum() if total is None else total) / counts
    return np.minimum(np.sqrt(ratio) + ratio, 1.0).astype(np.float32)


def make_block_rows(
    keep_V: np.ndarray, window: int, settings: InputConfig, seed: int
) -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]:
    """Return a function that subsamples the tokens of a block, and makes its rows.

    The result depends only on its arguments and on `seed`. Rows are in random order if --shuffle.

    Args:
        keep_V: Probability that a token of each id is kept, (V,) float32.

    Returns:
        Function (epoch, block number, tokens) -> rows (R, L) int32. The first two are int64
            scalars.
    """
    # Subsampling concerns the most frequent words, so a short constant is enough for the graph.
    size = int(np.flatnonzero(keep_V < 1).max(initial=-1)) + 1
    keep_N = tf.constant(np.append(keep_V[:size], np.float32(1)))

    def block_rows(epoch: tf.Tensor, number: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
        """Return the rows (R, L) int32 of the tokens that a random draw keeps."""
        ids, _, documents = (part[0] for part in decode(tokens[tf.newaxis]))
        chances = tf.gather(keep_N, tf.minimum(ids, size))
        return sample_rows(ids, documents, chances, epoch, number, window, settings, seed)

    return block_rows


def sample_rows(
    ids_M: tf.Tensor,
    documents_M: tf.Tensor,
    chances_M: tf.Tensor,
    epoch: tf.Tensor,
    number: tf.Tensor,
    window: int,
    settings: InputConfig,
    seed: int,
) -> tf.Tensor:
    """Return the rows (R, L) int32 of the tokens of a block that a random draw keeps.

    The starts of documents are marked anew. Rows are in random order if --shuffle.

    Args:
        ids_M: The id of each token, int32.
        documents_M: The number of its document; equal numbers are beside each other.
        chances_M: The probability that it is kept, float32.
        epoch: Number of the epoch, int64 scalar.
        number: Number of the block, int64 scalar.
    """
    draws_M = tf.random.stateless_uniform(
        tf.shape(ids_M), block_seed(seed, SUBSAMPLE, epoch, number)
    )
    kept_M = draws_M < chances_M
    first = differs_from_previous(tf.boolean_mask(documents_M, kept_M))
    rows_RL = _rows(encode(tf.boolean_mask(ids_M, kept_M), first), settings.row_tokens, window)
    if settings.shuffle:
        shuffling = block_seed(seed, SHUFFLE, epoch, number)
        keys_R = tf.random.stateless_uniform(tf.shape(rows_RL)[:1], shuffling)
        rows_RL = tf.gather(rows_RL, tf.argsort(keys_R))
    return rows_RL


def block_seed(seed: int, stream: int, epoch: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """Return the seed (2,) int64 of one kind of random draw for a block.

    Args:
        stream: Kind of draw, such as `SUBSAMPLE`.
        number: Number of the block in the epoch, int64 scalar.
    """
    return tf.stack([seed + (stream << 40), epoch * (1 << 32) + number])


def differs_from_previous(values_N: tf.Tensor) -> tf.Tensor:
    """Return whether each value differs from the previous one, (N,) bool; true for the first."""
    return tf.concat([tf.ones_like(values_N[:1], tf.bool), values_N[1:] != values_N[:-1]], axis=0)


def _rows(tokens_N: tf.Tensor, centres: int, window: int) -> tf.Tensor:
    """Return rows (R, L) of `centres` tokens with a halo of `window` tokens on each side.

    Rows follow each other in the text, so a halo repeats tokens of the rows beside it. Positions
    before the first and after the last token are `PAD`.
    """
    size = tf.shape(tokens_N)[0]
    count = -(-size // centres)
    padded = tf.pad(tokens_N, [[window, window + count * centres - size]], constant_values=PAD)
    starts = tf.range(count) * centres
    return tf.gather(padded, starts[:, tf.newaxis] + tf.range(centres + 2 * window))
