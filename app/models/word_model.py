"""The parts that the models of words share: the table of word vectors, and contexts of centres."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ..input.token_rows import Decoded, decode
from ..losses.base import Loss
from ..system.xla import uniform_integers
from ..tables.base import TableSpec
from ..tables.initial import Uniform
from ..tables.row_reads import take
from ..types import Batch, Rows
from .base import initial_seed
from .row_lists import ListedRows, SubwordRows


@dataclasses.dataclass(frozen=True)
class WordModel:
    """The base class of skip-gram and CBOW.

    Attributes:
        size: The number of words, V.
        dim: The columns of a word's vector, D.
        window: The most tokens between a centre and a word of its context.
        subwords: The rows of each word; None if a word has only the row of its id.
        chances_V: The probability of each word as a token of a batch; None if it is not known.
    """

    size: int
    dim: int
    window: int
    output: Loss
    seed: int
    dtype: tf.DType = tf.float32
    subwords: SubwordRows | None = None
    chances_V: np.ndarray | None = None

    def for_usual_batches(self) -> WordModel | None:
        """Return the model with less padding, or None if there is none; see `Padded`."""
        if self.subwords is None or self.chances_V is None:
            return None
        return dataclasses.replace(self, subwords=self.subwords.for_usual(self.chances_V))

    def fits(self, batch: Batch) -> tf.Tensor:
        """Return whether the padding is enough for a batch; see `Padded`."""
        return self.subwords.fit(self.composed_words(decode(batch.data).ids))

    def composed_words(self, ids_BL: tf.Tensor) -> tf.Tensor:
        """Return the words of a batch whose vectors are needed; here all, (B, L)."""
        return ids_BL

    def prepare_words(self, words: tf.Tensor) -> tf.Tensor | ListedRows:
        """Return words for `word_lookups`, prepared if that can be done before the step."""
        return words if self.subwords is None else self.subwords.prepare(words)

    def tables(self) -> dict[str, TableSpec]:
        """Return the specs of the table `input`, the rows of words, and of the loss's tables.

        Rows of words are uniform at first, -0.5 / D to 0.5 / D, as in word2vec.c. With subwords all
        rows are -1 / D to 1 / D, as in FastText::createRandomMatrix.
        """
        rows, reach = self.size, 0.5 / self.dim
        if self.subwords is not None:
            rows, reach = self.subwords.rows, 1 / self.dim
        initial = Uniform(reach, initial_seed("initial", self.seed))
        spec = TableSpec(rows, self.dim, initial, by_frequency=True)
        return {"input": spec, **self.output.tables()}

    def word_lookups(self, words: tf.Tensor | ListedRows) -> tf.Tensor | list[tf.Tensor]:
        """Return the ids of the rows of `input` that the vectors of words need."""
        return words if self.subwords is None else self.subwords.lookups(words)

    def take_words(self, words: tf.Tensor | ListedRows, rows: Rows) -> tf.Tensor:
        """Return the vector of each word, (N, D) of `dtype`.

        Args:
            words: The N words that `word_lookups` was called with.
            rows: The rows of these lookups.
        """
        return take(self.unique_words(words, rows), self.dtype)

    def unique_words(self, words: tf.Tensor | ListedRows, rows: Rows) -> Rows:
        """Return the vectors of the unique words, float32, and the index of each word among them.

        Args:
            words: The N words that `word_lookups` was called with.
            rows: The rows of these lookups.
        """
        if self.subwords is None:
            return rows
        return self.subwords.take_unique(words, rows)


class Contexts(NamedTuple):
    """What a word model computes from the tokens of a batch alone (see `Model.prepare`).

    Attributes:
        ids: The ids of the tokens, (B, L) int32.
        pairs: A number for each pair of a centre and a token of its row, (B, T, L) float32; 0 if
            the token is not in the context of the centre.
        weights: The weight of each centre, (B, T, 1) float32.
        words: The words whose vectors are needed, see `WordModel.prepare_words`.
    """

    ids: tf.Tensor
    pairs: tf.Tensor
    weights: tf.Tensor
    words: tf.Tensor | ListedRows


def draw_contexts(tokens: Decoded, window: int, seed: tf.Tensor) -> tf.Tensor:
    """Draw the reach of each centre, and return a mask of the tokens of its context.

    The reach of each centre is drawn from 1 to `window` tokens to either side, as in word2vec.c.

    Args:
        tokens: Rows of L tokens with T centres.
        window: The largest reach, in tokens.
        seed: (2,) integers; the draw is a function of it.

    Returns:
        (B, T, L) float32: 1 where token l of a row is in the context of centre t, else 0.
    """
    return _context_mask(tokens.real, tokens.document, _draw_reach(tokens, window, seed))


def draw_shares(tokens: Decoded, window: int, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the shares of the tokens in the mean of each context of `draw_contexts`.

    A centre without a context has no mean: its weight is 0.

    Args:
        tokens: Rows of L tokens with T centres.
        window: The largest reach, in tokens.
        seed: (2,) integers; the draw is a function of it.

    Returns:
        Shares (B, T, L) float32, all 0 for an empty context, and the weight of each centre, 0 or 1,
        (B, T, 1) float32.
    """
    return _context_shares(tokens.real, tokens.document, _draw_reach(tokens, window, seed))


def weigh_contexts(tokens: Decoded, window: int) -> tf.Tensor:
    """Return the probability with which `draw_contexts` draws each pair of a centre and a token.

    It is (window + 1 - d) / window for two tokens at a distance of d. A loss whose pairs have these
    weights has the expected gradient of the drawn pairs, without the noise of the draw.

    Args:
        tokens: Rows of L tokens with T centres.
        window: The largest distance, in tokens.

    Returns:
        (B, T, L) float32: 0 where token l of a row is not in the context of centre t.
    """
    return _weights_function(window)(tokens.real, tokens.document)


def _draw_reach(tokens: Decoded, window: int, seed: tf.Tensor) -> tf.Tensor:
    """Draw the reach of each centre, from 1 to `window` tokens, (B, T) int32."""
    batch, length = tokens.ids.shape
    shape = batch, length - 2 * window
    return uniform_integers(shape, seed, 1, window + 1)


@tf.function(autograph=False, jit_compile=True)
def _context_shares(
    real_BL: tf.Tensor, document_BL: tf.Tensor, reach_BT: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the result of `draw_shares`; for the arguments see `_context_mask`."""
    mask_BTL = _context_mask(real_BL, document_BL, reach_BT)
    sizes_BT1 = tf.reduce_sum(mask_BTL, axis=2, keepdims=True)
    return mask_BTL / tf.maximum(sizes_BT1, 1.0), tf.minimum(sizes_BT1, 1.0)


@tf.function(autograph=False, jit_compile=True)  # one pass over (B, T, L) instead of eight
def _context_mask(real_BL: tf.Tensor, document_BL: tf.Tensor, reach_BT: tf.Tensor) -> tf.Tensor:
    """Return 1 for each token of a centre's context, else 0, (B, T, L) float32."""
    centres = reach_BT.shape[1]
    distance_TL = _distances(real_BL.shape[1], centres)
    near_BTL = (distance_TL > 0) & (distance_TL <= reach_BT[:, :, None])
    return tf.cast(near_BTL & _in_one_document(real_BL, document_BL, centres), tf.float32)


@functools.cache
def _weights_function(window: int) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Return the compiled function of `weigh_contexts` for a window.

    It computes the weights of a row. As a constant, a graph would hold them once for each step.
    """

    @tf.function(autograph=False, jit_compile=True)
    def weigh(real_BL: tf.Tensor, document_BL: tf.Tensor) -> tf.Tensor:
        """Return the weight of each token in the context of each centre, (B, T, L) float32."""
        length, centres = real_BL.shape[1], real_BL.shape[1] - 2 * window
        distance_TL = _distances(length, centres)
        weights_TL = tf.cast(tf.maximum(window + 1 - distance_TL, 0), tf.float32) / window
        weights_TL = tf.where(distance_TL > 0, weights_TL, 0.0)
        return tf.where(_in_one_document(real_BL, document_BL, centres), weights_TL, 0.0)

    return weigh


def _distances(length: int, centres: int) -> tf.Tensor:
    """Return the distance between each of T centres and each of L tokens, (T, L) int32."""
    window = (length - centres) // 2
    return tf.abs(tf.range(length)[None, :] - tf.range(centres)[:, None] - window)


def _in_one_document(real_BL: tf.Tensor, document_BL: tf.Tensor, centres: int) -> tf.Tensor:
    """Return whether each centre and each token are real and of one document, (B, T, L) bool."""
    window = (real_BL.shape[1] - centres) // 2
    inside = slice(window, window + centres)
    same_document_BTL = document_BL[:, inside, None] == document_BL[:, None, :]
    return same_document_BTL & real_BL[:, inside, None] & real_BL[:, None, :]
