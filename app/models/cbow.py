"""The continuous bag-of-words model (CBOW), on the same blocks of tokens as skip-gram."""

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
    """A model that predicts a word from the words around it (Mikolov et al. 2013a, section 3.1).

    The hidden vector is the mean of the context's vectors, as in word2vec.c and in gensim with
    `cbow_mean=1`. All means of a row are one product of the band of pairs and the row's vectors.
    The gradient of a mean is divided among its words. word2vec.c and gensim give each word the
    whole gradient, which is not the gradient of any loss (Irsoy et al. 2021).

    Attributes:
        size: The number of words, V.
        dim: The columns of a word's vector, D.
        window: The most tokens between a centre and a word of its context.
        output: The loss by which a vector predicts words.
        seed: The seed of the initial values.
        dtype: The dtype of the matrix products.
    """

    size: int
    dim: int
    window: int
    output: Loss
    seed: int
    dtype: tf.DType = tf.float32

    def tables(self) -> dict[str, TableSpec]:
        """Return the specs of the table `input`, the contexts' vectors, and the loss's tables."""
        return {"input": input_table(self.size, self.dim, self.seed), **self.output.tables()}

    def lookups(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Return the ids of all L tokens of each row, and the ids that the loss needs."""
        ids_BL = decode(batch.data).ids
        centres_N1 = self._centres(ids_BL)
        seed = draw_seed(batch, "negatives")
        return {"input": ids_BL, **self.output.lookups(centres_N1, centres_N1.shape[0], seed)}

    def loss(self, batch: Batch, rows: dict[str, Rows]) -> Outcome:
        """Return the loss of all centres that have a context, and the number of these centres."""
        size, length = batch.data.shape
        tokens = decode(batch.data)
        pairs_BTL = pairs(tokens, self.window, draw_seed(batch, "window"))
        context_sizes_BT1 = tf.reduce_sum(pairs_BTL, axis=2, keepdims=True)
        mean_BTL = tf.cast(tf.math.divide_no_nan(pairs_BTL, context_sizes_BT1), self.dtype)

        contexts_ND = take(rows["input"], self.dtype)
        hidden_BTD = tf.matmul(mean_BTL, tf.reshape(contexts_ND, (size, length, self.dim)))
        # A centre without a context has no mean to be predicted from.
        weights_BT1 = tf.cast(context_sizes_BT1 > 0, tf.float32)
        predictions = Predictions(
            tf.reshape(hidden_BTD, (-1, 1, self.dim)),
            self._centres(tokens.ids),
            tf.reshape(weights_BT1, (-1, 1, 1)),
        )
        return loss_outcome(self.output, predictions, rows, tf.reduce_sum(weights_BT1))

    def _centres(self, ids_BL: tf.Tensor) -> tf.Tensor:
        """Return the ids in the middle of each row, without `window` on both sides, (B T, 1)."""
        return tf.reshape(ids_BL[:, self.window : -self.window], (-1, 1))
