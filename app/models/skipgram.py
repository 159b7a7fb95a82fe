"""Skip-gram with negative sampling, a block of tokens at a time."""

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
class SkipGram:
    """Predicts the words around a word (Mikolov et al. 2013a, section 3.2; 2013b, equation 4).

    A batch is rows of T centres with `window` tokens on both sides. One product of a row's centres
    with all its tokens scores its pairs, and some that are masked: that wastes arithmetic, which is
    cheap, and saves gathering a row for each pair, which is not.

    size: V. dim: D. seed: of the initial values. dtype: of the products.
    """

    size: int
    dim: int
    window: int
    negatives: SharedNegatives
    seed: int
    dtype: tf.DType = tf.float32

    def tables(self) -> dict[str, TableSpec]:
        """Centres are rows of `input`; contexts and negatives of `output`."""
        return word_tables(self.size, self.dim, self.seed)

    def lookups(self, batch: Batch) -> dict[str, tf.Tensor]:
        """The batch's centres; its tokens, then its negatives."""
        ids_BL = decode(batch.tokens_BL).ids
        centres_BT = ids_BL[:, self.window : -self.window]
        drawn = self.negatives.draw(centres_BT.shape.num_elements(), seed_of(batch, "negatives"))
        return {
            "input": centres_BT,
            "output": tf.concat([tf.reshape(ids_BL, [-1]), drawn], axis=0),
        }

    def loss(self, batch: Batch, rows: dict[str, Rows]) -> tuple[tf.Tensor, tf.Tensor]:
        """The logistic loss of all pairs and of their negatives; the number of pairs."""
        size, length = batch.tokens_BL.shape
        centres = length - 2 * self.window
        pairs_BTL = pairs(decode(batch.tokens_BL), self.window, seed_of(batch, "window"))

        centres_ND = take(rows["input"], self.dtype)
        contexts_ND, samples_MD = tf.split(take(rows["output"], self.dtype), [size * length, -1])
        scores_BTL = tf.matmul(
            tf.reshape(centres_ND, (size, centres, self.dim)),
            tf.reshape(contexts_ND, (size, length, self.dim)),
            transpose_b=True,
        )
        pairs_N = tf.reshape(tf.reduce_sum(pairs_BTL, axis=2), [-1])
        total = logistic(scores_BTL, pairs_BTL, observed=True)
        total += self.negatives.loss(centres_ND, samples_MD, pairs_N)
        return total, tf.reduce_sum(pairs_N)
