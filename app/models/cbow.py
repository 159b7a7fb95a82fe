"""The continuous bag-of-words model (CBOW), on the same blocks of tokens as skip-gram."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from ..input.token_rows import decode
from ..losses.base import Predictions
from ..types import Batch, Rows
from .base import Outcome, apply_loss, draw_seed
from .word_model import Contexts, WordModel, draw_shares


@dataclasses.dataclass(frozen=True)
class Cbow(WordModel):
    """A model that predicts a word from the words around it (Mikolov et al. 2013a, section 3.1).

    The hidden vector is the mean of the context's vectors, as in word2vec.c and in gensim with
    `cbow_mean=1`. All means of a row are one product of the band of pairs and the row's vectors.
    The gradient of a mean is divided among its words. word2vec.c and gensim give each word the
    whole gradient, which is not the gradient of any loss (Irsoy et al. 2021).
    """

    def prepare(self, batch: Batch) -> Batch:
        """Return the batch with the shares of tokens in means as data; see `Preparable`."""
        if isinstance(batch.data, Contexts):
            return batch
        tokens = decode(batch.data)
        seed = draw_seed(batch, "window")
        mean_BTL, weights_BT1 = draw_shares(tokens, self.window, seed)
        words = self.prepare_words(tokens.ids)
        return batch._replace(data=Contexts(tokens.ids, mean_BTL, weights_BT1, words))

    def lookups(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Return the ids for all L tokens of each row, and the ids that the loss needs."""
        contexts: Contexts = self.prepare(batch).data
        centres_N1 = self._centres(contexts.ids)
        seed = draw_seed(batch, "negatives")
        return {
            "input": self.word_lookups(contexts.words),
            **self.output.lookups(centres_N1, centres_N1.shape[0], seed),
        }

    def loss(self, batch: Batch, rows: dict[str, Rows]) -> Outcome:
        """Return the loss of all centres that have a context, and the number of these centres."""
        contexts: Contexts = self.prepare(batch).data
        contexts_ND = self.take_words(contexts.words, rows["input"])
        hidden_BTD = tf.matmul(
            tf.cast(contexts.pairs, self.dtype),
            tf.reshape(contexts_ND, (*contexts.ids.shape, self.dim)),
        )
        predictions = Predictions(
            tf.reshape(hidden_BTD, (-1, 1, self.dim)),
            self._centres(contexts.ids),
            tf.reshape(contexts.weights, (-1, 1, 1)),
        )
        return apply_loss(self.output, predictions, rows, tf.reduce_sum(contexts.weights))

    def _centres(self, ids_BL: tf.Tensor) -> tf.Tensor:
        """Return the ids in the middle of each row, without `window` on both sides, (B T, 1)."""
        return tf.reshape(ids_BL[:, self.window : -self.window], (-1, 1))
