"""The skip-gram model of words, on blocks of tokens."""

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
class SkipGram:
    """A model that predicts the words around a word (Mikolov et al. 2013a, section 3.2).

    A batch has rows of T centres, with `window` more tokens on both sides. Each row is a group of
    predictions: its T centres predict all of its L tokens, under a mask of the pairs. This does
    more arithmetic than pair by pair, which is cheap. It gathers fewer rows, which is not.

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
        """Return the specs of the table `input`, the centres' vectors, and the loss's tables."""
        return {"input": input_table(self.size, self.dim, self.seed), **self.output.tables()}

    def lookups(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Return the ids of the T centres of each row, and the ids that the loss needs.

        The loss is to predict all L tokens of a row.
        """
        ids_BL = decode(batch.data).ids
        centres_BT = ids_BL[:, self.window : -self.window]
        vectors, seed = centres_BT.shape.num_elements(), draw_seed(batch, "negatives")
        return {"input": centres_BT, **self.output.lookups(ids_BL, vectors, seed)}

    def loss(self, batch: Batch, rows: dict[str, Rows]) -> Outcome:
        """Return the loss of all pairs of a centre and a word of its context, and their number.

        The reach of each centre is drawn by the seed of the step (see `models.window.pairs`).
        """
        size, length = batch.data.shape
        tokens = decode(batch.data)
        pairs_BTL = pairs(tokens, self.window, draw_seed(batch, "window"))
        centres_ND = take(rows["input"], self.dtype)
        hidden_BTD = tf.reshape(centres_ND, (size, length - 2 * self.window, self.dim))
        predictions = Predictions(hidden_BTD, tokens.ids, pairs_BTL)
        return loss_outcome(self.output, predictions, rows, tf.reduce_sum(pairs_BTL))
