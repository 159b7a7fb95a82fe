"""The skip-gram model of words, on blocks of tokens."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from ..input.token_rows import Decoded, decode
from ..losses.base import Predictions
from ..types import HOST, Batch, Rows
from .base import Outcome, apply_loss, draw_seed
from .word_model import Contexts, WordModel, draw_contexts, weigh_contexts


@dataclasses.dataclass(frozen=True)
class SkipGram(WordModel):
    """A model that predicts the words around a word (Mikolov et al. 2013a, section 3.2).

    A batch has rows of T centres, with `window` more tokens on both sides. Each row is a group of
    predictions: its T centres predict all of its L tokens, each pair with its weight, mostly 0.
    This does more arithmetic than pair by pair, which is cheap. It gathers fewer rows, which is
    not. A loss for which words cost more than vectors (`Loss.group_words`) gets the reverse: the L
    tokens predict the T centres, as in word2vec.c, in shorter rows.

    word2vec.c draws the reach of each centre. Here a pair has the probability of being drawn as its
    weight: the expected gradient is the same, and each step learns from all pairs.

    Attributes:
        draws_contexts: Whether to draw the reach of each centre nevertheless. With a window of 5
            there are then 0.6 times as many pairs, which saves time if the loss lists them
            (`Loss.lists_pairs`).
    """

    draws_contexts: bool = False

    def prepare(self, batch: Batch) -> Batch:
        """Return the batch with the weights of its pairs as data; see `Preparable`."""
        if isinstance(batch.data, Contexts):
            return batch
        tokens = self._decode(batch)
        if self.draws_contexts:
            pairs_BTL = draw_contexts(tokens, self.window, draw_seed(batch, "window"))
        else:
            pairs_BTL = weigh_contexts(tokens, self.window)
        weights_BT1 = tf.reduce_sum(pairs_BTL, axis=2, keepdims=True)
        words = self.prepare_words(self.composed_words(tokens.ids))
        return batch._replace(data=Contexts(tokens.ids, pairs_BTL, weights_BT1, words))

    def composed_words(self, ids_BL: tf.Tensor) -> tf.Tensor:
        """Return the words that predict others: the centres, or all tokens if `group_words`."""
        return ids_BL if self.output.group_words else self._centres(ids_BL)

    def lookups(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Return the ids for the vectors of each row, and the ids that the loss needs."""
        contexts: Contexts = self.prepare(batch).data
        targets_BM = self._centres(contexts.ids) if self.output.group_words else contexts.ids
        count = self.composed_words(contexts.ids).shape.num_elements()
        words = {"input": self.word_lookups(contexts.words)}
        return words | self.output.lookups(targets_BM, count, draw_seed(batch, "negatives"))

    def loss(self, batch: Batch, rows: dict[str, Rows]) -> Outcome:
        """Return the loss of all pairs of a centre and a word of its context, and their weight."""
        contexts: Contexts = self.prepare(batch).data
        make = self._predict_centres if self.output.group_words else self._predict_contexts
        predictions = make(contexts, rows["input"])
        return apply_loss(self.output, predictions, rows, tf.reduce_sum(contexts.pairs))

    def _predict_contexts(self, contexts: Contexts, rows: Rows) -> Predictions:
        """Return predictions of all tokens of a row by each centre."""
        centres_ND = self.take_words(contexts.words, rows)
        hidden_BTD = tf.reshape(centres_ND, (*contexts.pairs.shape[:2], self.dim))
        return Predictions(hidden_BTD, contexts.ids, contexts.pairs, sums_GN1=contexts.weights)

    def _predict_centres(self, contexts: Contexts, rows: Rows) -> Predictions:
        """Return predictions of the centres of a row by each token of their contexts.

        Over a text these are the same pairs. word2vec.c and gensim predict centres, too.
        """
        ids_BL = contexts.ids
        hidden_ND = self.take_words(contexts.words, rows)
        return Predictions(
            tf.reshape(hidden_ND, (*ids_BL.shape, self.dim)),
            self._centres(ids_BL),
            tf.transpose(contexts.pairs, (0, 2, 1)),
            unique=self.unique_words(contexts.words, rows),
        )

    def _decode(self, batch: Batch) -> Decoded:
        """Return the tokens of a batch, in rows of as many centres as suit the loss."""
        rows, length = batch.data.shape
        centres, size = length - 2 * self.window, self.output.group_words
        tokens = decode(batch.data)
        if not size or centres <= size or centres % size:
            return tokens
        with tf.device(HOST):  # with the tokens
            count, length = centres // size, size + 2 * self.window
            places_PL = tf.range(0, centres, size)[:, tf.newaxis] + tf.range(length)
            return Decoded(
                *(
                    tf.reshape(tf.gather(field_BL, places_PL, axis=1), (rows * count, length))
                    for field_BL in tokens
                )
            )

    def _centres(self, ids_BL: tf.Tensor) -> tf.Tensor:
        """Return the ids in the middle of each row, without `window` on both sides, (B, T)."""
        with tf.device(HOST):  # as the ids
            return ids_BL[:, self.window : -self.window]
