"""Skip-gram, a block of tokens at a time."""

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
    """Predicts the words around a word (Mikolov et al. 2013a, section 3.2).

    A batch is rows of T centres with `window` tokens on both sides. A row is a group of
    predictions: T vectors and all its L tokens, of which some are masked. That wastes arithmetic,
    which is cheap, and saves gathering a row for each pair, which is not.

    size: V. dim: D. output: the loss. seed: of the initial values. dtype: of the products.
    """

    size: int
    dim: int
    window: int
    output: Loss
    seed: int
    dtype: tf.DType = tf.float32

    def tables(self) -> dict[str, TableSpec]:
        """Centres are rows of `input`; the other tables are the loss's."""
        return {"input": input_table(self.size, self.dim, self.seed), **self.output.tables()}

    def lookups(self, batch: Batch) -> dict[str, tf.Tensor]:
        """The batch's centres, and what the loss needs."""
        ids_BL = decode(batch.data).ids
        centres_BT = ids_BL[:, self.window : -self.window]
        vectors, seed = centres_BT.shape.num_elements(), draw_seed(batch, "negatives")
        return {"input": centres_BT, **self.output.lookups(ids_BL, vectors, seed)}

    def loss(self, batch: Batch, rows: dict[str, Rows]) -> Outcome:
        """The loss of all pairs, and their number."""
        size, length = batch.data.shape
        tokens = decode(batch.data)
        pairs_BTL = pairs(tokens, self.window, draw_seed(batch, "window"))
        centres_ND = take(rows["input"], self.dtype)
        hidden_BTD = tf.reshape(centres_ND, (size, length - 2 * self.window, self.dim))
        predictions = Predictions(hidden_BTD, tokens.ids, pairs_BTL)
        return loss_outcome(self.output, predictions, rows, tf.reduce_sum(pairs_BTL))
