"""Continuous bag of words, on the same blocks as skip-gram."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from ..input.tokens import decode
from ..losses.base import Loss, Predictions
from ..tables.base import TableSpec
from ..tables.row_reads import take
from ..types import Batch, Rows
from .base import Outcome
from .window import pairs
from .words import draw_seed, input_table, loss_outcome


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
    output: Loss
    seed: int
    dtype: tf.DType = tf.float32

    def tables(self) -> dict[str, TableSpec]:
        """Contexts are rows of `input`; the other tables are the loss's."""
        return {"input": input_table(self.size, self.dim, self.seed), **self.output.tables()}

    def lookups(self, batch: Batch) -> dict[str, tf.Tensor]:
        """The batch's tokens, and what the loss needs."""
        ids_BL = decode(batch.data).ids
        centres_N1 = self._centres(ids_BL)
        seed = draw_seed(batch, "negatives")
        return {"input": ids_BL, **self.output.lookups(centres_N1, centres_N1.shape[0], seed)}

    def loss(self, batch: Batch, rows: dict[str, Rows]) -> Outcome:
        """The loss of all centres with a word around them, and their number."""
        size, length = batch.data.shape
        tokens = decode(batch.data)
        pairs_BTL = pairs(tokens, self.window, draw_seed(batch, "window"))
        around_BT1 = tf.reduce_sum(pairs_BTL, axis=2, keepdims=True)
        mean_BTL = tf.cast(tf.math.divide_no_nan(pairs_BTL, around_BT1), self.dtype)

        contexts_ND = take(rows["input"], self.dtype)
        hidden_BTD = tf.matmul(mean_BTL, tf.reshape(contexts_ND, (size, length, self.dim)))
        # A word with nothing around it predicts nothing.
        weights_BT1 = tf.cast(around_BT1 > 0, tf.float32)
        predictions = Predictions(
            tf.reshape(hidden_BTD, (-1, 1, self.dim)),
            self._centres(tokens.ids),
            tf.reshape(weights_BT1, (-1, 1, 1)),
        )
        return loss_outcome(self.output, predictions, rows, tf.reduce_sum(weights_BT1))

    def _centres(self, ids_BL: tf.Tensor) -> tf.Tensor:
        return tf.reshape(ids_BL[:, self.window : -self.window], (-1, 1))
