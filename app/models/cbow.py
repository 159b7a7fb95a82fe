"""Continuous bag of words with negative sampling, on the same blocks as skip-gram."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from app.input.tokens import decode
from app.losses.logistic import logistic
from app.models.base import TableSpec
from app.models.negatives import SharedNegatives
from app.models.rows import take
from app.models.window import pairs
from app.models.words import seed_of, word_tables
from app.types import Batch, Rows


@dataclasses.dataclass(frozen=True)
class Cbow:
    """Predicts a word from the mean of the words around it (Mikolov et al. 2013a, section 3.1).

    The mean, as gensim's `cbow_mean=1` and word2vec.c have it, is a product of the band of pairs
    with the row's tokens. Its gradient is divided among the words of the mean; those two give each
    word the whole, which is not the gradient of any loss (Irsoy et al. 2021). Fields as of
    `SkipGram`.
    """

    size: int
    dim: int
    window: int
    negatives: SharedNegatives
    seed: int
    dtype: tf.DType = tf.float32

    def tables(self) -> dict[str, TableSpec]:
        """Contexts are rows of `input`; centres and negatives of `output`."""
        return word_tables(self.size, self.dim, self.seed)

    def lookups(self, batch: Batch) -> dict[str, tf.Tensor]:
        """The batch's tokens; its centres, then its negatives."""
        ids_BL = decode(batch.tokens_BL).ids
        centres_BT = ids_BL[:, self.window : -self.window]
        drawn = self.negatives.draw(centres_BT.shape.num_elements(), seed_of(batch, "negatives"))
        return {
            "input": ids_BL,
            "output": tf.concat([tf.reshape(centres_BT, [-1]), drawn], axis=0),
        }

    def loss(self, batch: Batch, rows: dict[str, Rows]) -> tuple[tf.Tensor, tf.Tensor]:
        """The logistic loss of all centres and of their negatives; the number of centres."""
        size, length = batch.tokens_BL.shape
        centres = length - 2 * self.window
        pairs_BTL = pairs(decode(batch.tokens_BL), self.window, seed_of(batch, "window"))
        around_BT1 = tf.reduce_sum(pairs_BTL, axis=2, keepdims=True)
        mean_BTL = tf.cast(tf.math.divide_no_nan(pairs_BTL, around_BT1), self.dtype)

        contexts_ND = take(rows["input"], self.dtype)
        hidden_BTD = tf.matmul(mean_BTL, tf.reshape(contexts_ND, (size, length, self.dim)))
        hidden_ND = tf.reshape(hidden_BTD, (-1, self.dim))
        centres_ND, samples_MD = tf.split(take(rows["output"], self.dtype), [size * centres, -1])
        # A word with nothing around it predicts nothing.
        weights_N = tf.reshape(tf.cast(around_BT1 > 0, tf.float32), [-1])
        scores_N = tf.reduce_sum(hidden_ND * centres_ND, axis=1)
        total = logistic(scores_N, weights_N, observed=True)
        total += self.negatives.loss(hidden_ND, samples_MD, weights_N)
        return total, tf.reduce_sum(weights_N)
