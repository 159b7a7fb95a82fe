"""The skip-gram model of words, on blocks of tokens."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from ..input.tokens import decode
from ..losses.base import Predictions
from ..types import HOST, Batch, Rows
from .base import Outcome, apply_loss
from .seeds import draw_seed
from .window import draw_contexts, weigh_contexts
from .word_model import WordModel


@dataclasses.dataclass(frozen=True)
class SkipGram(WordModel):
    """A model that predicts the words around a word (Mikolov et al. 2013a, section 3.2).

    A batch has rows of T centres, with `window` more tokens on both sides. Each row is a group of
    predictions: its T centres predict all of its L tokens, each pair with its weight, mostly 0.
    This does more arithmetic than pair by pair, which is cheap. It gathers fewer rows, which is
    not.

    word2vec.c draws the reach of each centre. Here a pair has the probability of being drawn as its
    weight: the expected gradient is the same, and each step learns from all pairs.

    Attributes:
        draws_contexts: Whether to draw the reach of each centre nevertheless. With a window of 5
            there are then 0.6 times as many pairs, which saves time if the loss lists them
            (`Loss.lists_pairs`).
    """

    draws_contexts: bool = False

    def lookups(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Return the ids for the T centres of each row, and the ids that the loss needs.

        The loss is to predict all L tokens of a row.
        """
        ids_BL = decode(batch.data).ids
        centres_BT = self._centres(ids_BL)
        vectors, seed = centres_BT.shape.num_elements(), draw_seed(batch, "negatives")
        words = {"input": self.word_lookups(centres_BT)}
        return words | self.output.lookups(ids_BL, vectors, seed)

    def loss(self, batch: Batch, rows: dict[str, Rows]) -> Outcome:
        """Return the loss of all pairs of a centre and a word of its context, and their weight."""
        size, length = batch.data.shape
        tokens = decode(batch.data)
        if self.draws_contexts:
            contexts_BTL = draw_contexts(tokens, self.window, draw_seed(batch, "window"))
        else:
            contexts_BTL = weigh_contexts(tokens, self.window)
        centres_ND = self.take_words(self._centres(tokens.ids), rows["input"])
        hidden_BTD = tf.reshape(centres_ND, (size, length - 2 * self.window, self.dim))
        predictions = Predictions(hidden_BTD, tokens.ids, contexts_BTL)
        return apply_loss(self.output, predictions, rows, tf.reduce_sum(contexts_BTL))

    def _centres(self, ids_BL: tf.Tensor) -> tf.Tensor:
        """Return the ids in the middle of each row, without `window` on both sides, (B, T)."""
        with tf.device(HOST):  # as the ids
            return ids_BL[:, self.window : -self.window]
