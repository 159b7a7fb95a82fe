"""The interface of a loss: how hidden vectors predict words out of a vocabulary of V.

A loss reads its rows in one of two ways. A loss that needs few rows for a batch names their ids in
`lookups`, as a model does, and is given the rows. A loss that needs more rows than should be in
memory at once is streamed: it returns `Part`s, and `losses.stream` gathers, differentiates and
updates the rows of a part block by block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from ..system.xla import under_xla
from ..tables.base import Table, TableSpec
from ..types import HOST, Rows

# Reads rows: takes the name of a table and ids (U,), returns rows (U, D) float32.
Gather = Callable[[str, tf.Tensor], tf.Tensor]


def gather_from(tables: Mapping[str, Table]) -> Gather:
    """Return a function that reads rows of the given tables."""
    return lambda name, ids_U: tables[name].gather(ids_U)


class Shares(NamedTuple):
    """The part of each vector's weight that belongs to each of its words.

    It is for a loss that also scores all other words.

    Attributes:
        vectors_GN: The weight of each vector, float32.
        words_GNM: The part of this weight with which the vector has the word, float32. With the
            rest of it, the vector counts as one without the word.
    """

    vectors_GN: tf.Tensor
    words_GNM: tf.Tensor


class Predictions(NamedTuple):
    """Groups of hidden vectors and of words, and the weight of each pair of them.

    A language model has groups of one vector and one word. Skip-gram has one group for each row of
    text, so that one matrix product scores all pairs of the row.

    Attributes:
        hidden_GND: The N hidden vectors of each group, any float dtype.
        targets_GM: The ids of the M words of each group, int32.
        weights_GNM: The weight of each pair of a vector and a word, float32; 0 where the vector is
            not to predict the word. No gradient flows to it.
        shares: For a loss that is `is_multi_label`. None: every weight above 0 stands for a whole
            word, and every vector that has a word has the weight 1.
        unique: The unique hidden vectors, float32, and the index of each of the G N vectors among
            them. A loss may differentiate by these. None if no vectors are repeated.
        sums_GN1: The sums of `weights_GNM` over the words, where they are known.
    """

    hidden_GND: tf.Tensor
    targets_GM: tf.Tensor
    weights_GNM: tf.Tensor
    shares: Shares | None = None
    unique: Rows | None = None
    sums_GN1: tf.Tensor | None = None


class VectorWordPairs(NamedTuple):
    """Predictions as a list of P pairs, each of one hidden vector and one word.

    Attributes:
        hidden_ND: All hidden vectors.
        owners_P: The index of each pair's vector in `hidden_ND`, int32. None if pair p has vector
            p.
        targets_P: The id of each pair's word, int32.
        weights_P: The weight of each pair, float32.
        count: How many of the pairs there are; the others are padding, for XLA. None for all.
    """

    hidden_ND: tf.Tensor
    owners_P: tf.Tensor | None
    targets_P: tf.Tensor
    weights_P: tf.Tensor
    count: tf.Tensor | None = None

    @classmethod
    def from_predictions(cls, predictions: Predictions, is_sorted: bool = True) -> VectorWordPairs:
        """List the pairs of positive weight.

        If each group has one vector and one word, all pairs are listed, also those of weight 0, so
        that their number is static.

        Args:
            is_sorted: Whether the pairs are in the order of their words under XLA.
        """
        hidden_GND, targets_GM, weights_GNM, *_ = predictions
        is_single = hidden_GND.shape[1] == targets_GM.shape[1] == 1
        if under_xla() and (is_sorted or not is_single):
            return cls._sort(predictions, is_single)
        hidden_ND = tf.reshape(hidden_GND, (-1, hidden_GND.shape[2]))
        if is_single:
            return cls(hidden_ND, None, tf.reshape(targets_GM, [-1]), tf.reshape(weights_GNM, [-1]))
        with tf.device(HOST):
            indices_P3 = tf.cast(tf.where(weights_GNM > 0), tf.int32)
            group_P, vector_P, word_P = tf.unstack(indices_P3, axis=1)
            return cls(
                hidden_ND,
                group_P * hidden_GND.shape[1] + vector_P,
                tf.gather_nd(targets_GM, tf.stack([group_P, word_P], axis=1)),
                tf.gather_nd(weights_GNM, indices_P3),
            )

    @classmethod
    def _sort(cls, predictions: Predictions, is_single: bool) -> VectorWordPairs:
        """List the pairs by ascending word, followed by those of weight 0 unless `is_single`."""
        hidden_GND, targets_GM, weights_GNM, *_ = predictions
        targets_GNM = tf.broadcast_to(targets_GM[:, tf.newaxis], tf.shape(weights_GNM))
        is_listed_GNM = tf.ones_like(weights_GNM, tf.bool) if is_single else weights_GNM > 0
        keys_GNM = tf.where(is_listed_GNM, targets_GNM, targets_GM.dtype.max)
        order_P = tf.argsort(tf.reshape(keys_GNM, [-1]), stable=True)
        return cls(
            tf.reshape(hidden_GND, (-1, hidden_GND.shape[2])),
            order_P // weights_GNM.shape[2],
            tf.gather(tf.reshape(targets_GNM, [-1]), order_P),
            tf.gather(tf.reshape(weights_GNM, [-1]), order_P),
            tf.reduce_sum(tf.cast(is_listed_GNM, tf.int32)),
        )

    def select(self, indices: tf.Tensor) -> VectorWordPairs:
        """Return the pairs at the given indices of the list.

        The result has all hidden vectors, and `owners_P` even if this list has none.

        Args:
            indices: Indices of pairs, (Q,); the result has Q pairs in this order.
        """
        owners_P = self.owners_P
        with tf.device(HOST):
            if owners_P is None:
                owners_P = tf.range(tf.shape(self.targets_P)[0])
            owners_P, targets_P = tf.gather(owners_P, indices), tf.gather(self.targets_P, indices)
        weights_P = tf.gather(self.weights_P, indices)
        return VectorWordPairs(self.hidden_ND, owners_P, targets_P, weights_P)


class SegmentMembers(NamedTuple):
    """The hidden vectors of each segment of a part, as lists of indices, one list after the other.

    Attributes:
        vectors_P: Indices of hidden vectors, int32. An index may occur several times.
        starts_G: Where the list of each segment begins in `vectors_P`, int32.
        counts_G: The length of the list of each segment, int32.
    """

    vectors_P: tf.Tensor
    starts_G: tf.Tensor
    counts_G: tf.Tensor

    def take(self, segment: tf.Tensor, values_P: tf.Tensor) -> tf.Tensor:
        """Return the values of the list of a segment."""
        start = self.starts_G[segment]
        return values_P[start : start + self.counts_G[segment]]


class Part(NamedTuple):
    """A sum of losses over blocks of rows of one table, as functions that `losses.stream` calls.

    No loss is computed when a part is made. A part has segments, and a segment has tiles. A tile is
    one block of rows. All tiles of a segment are scored against the same M hidden vectors. No row
    is in two blocks, so a step updates a row once, and the order of the blocks does not change the
    result.

    A softmax over several tiles needs the normalizer of its scores before it can differentiate one
    of them. Its part has `measure`: a first pass over the tiles that only reads, and carries a
    number for each vector from tile to tile.

    Attributes:
        hidden_ND: All hidden vectors.
        block: From a segment, a tile, and the result of the first pass, (M,) float32, to (ids of
            the tile's rows (U,) int32, labels). Labels are everything else that `loss` needs to
            know of the block. The third argument is None without a first pass, and while it runs.
        loss: From (labels, hidden_MD, rows_UD) to losses of any shape, which are summed.
        gradients: From the same to these losses and the gradients of their sum, by the vectors
            (M, D) and by the rows (U, D). None if TensorFlow differentiates `loss`.
        segments: The number of segments, an int or an int32 scalar.
        members: The hidden vectors of each segment. None if a single segment has them all.
        tiles: From a segment to its number of tiles, an int32 scalar. None if each segment has one.
        measure: From (hidden_MD, rows_UD, carry_M) to the next carry, (M,) float32; the
            first carry is -inf. None if no first pass is needed.
        rows: About how many rows it reads, for a plan of memory.
        scored: About how many rows a group of vectors is scored with, for a plan; 0 if not known.
        padded: Under XLA, computes the part in blocks of static sizes, in place of the attributes
            after `hidden_ND` (see `losses.classes.padded.PaddedSegments`).
    """

    table: str
    hidden_ND: tf.Tensor
    block: Callable[[tf.Tensor, tf.Tensor, tf.Tensor | None], tuple[tf.Tensor, Any]] | None
    loss: Callable[[Any, tf.Tensor, tf.Tensor], tf.Tensor]
    gradients: Callable[[Any, tf.Tensor, tf.Tensor], Sequence[tf.Tensor]] | None = None
    segments: int | tf.Tensor = 1
    members: SegmentMembers | None = None
    tiles: Callable[[tf.Tensor], tf.Tensor] | None = None
    measure: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor] | None = None
    rows: float = 0.0
    scored: int = 0
    padded: Any = None


# Ascending ids of words (M,) int32, and their log-probabilities (N, M) float32.
WordBlock = tuple[tf.Tensor, tf.Tensor]


class WordSegments(NamedTuple):
    """Segments of words, whose log-probabilities are computed block by block; also in a graph.

    Attributes:
        bounds_NG: For each of N hidden vectors and each segment, an upper bound of the
            log-probabilities of its words, float32.
        blocks: From a segment to its number of blocks, and a function from the number of a block
            to the block.
    """

    bounds_NG: tf.Tensor
    blocks: Callable[[Any], tuple[Any, Callable[[Any], WordBlock]]]

    @classmethod
    def whole(cls, bounds_NG: tf.Tensor, words: Callable[[Any], WordBlock]) -> WordSegments:
        """Return segments of one block each; `words` is a function from a segment to the block."""
        return cls(bounds_NG, lambda segment: (1, lambda block: words(segment)))

    def renumber(self, number: Callable[[tf.Tensor], tf.Tensor]) -> WordSegments:
        """Return the segments with `number(ids)` as the ids of the words."""

        def blocks(segment: Any) -> tuple[Any, Callable[[Any], WordBlock]]:
            count, words = self.blocks(segment)

            def renumbered(block: Any) -> WordBlock:
                ids_M, log_p_NM = words(block)
                return number(ids_M), log_p_NM

            return count, renumbered

        return self._replace(blocks=blocks)


class Loss(Protocol):
    """How a hidden vector predicts words.

    A model has a loss as its output layer: its own methods `tables`, `lookups` and `loss` call
    those of the loss.

    Attributes:
        is_likelihood: Whether the loss of a prediction is exactly -log P of its word, so that the
            exponential of the mean loss is the perplexity.
        is_multi_label: Whether each label has a probability of its own, so that a vector must be
            given with all of its labels at once.
        lists_pairs: Whether the time of a step grows with the number of pairs of positive weight.
            Otherwise all pairs of a group are scored, whatever their weights.
        group_words: The number of words of a group with which a step takes the least time, if it
            grows with the words more than with the vectors; else 0.
    """

    is_likelihood: bool = False
    is_multi_label: bool = False
    lists_pairs: bool = False
    group_words: int = 0

    def tables(self) -> dict[str, TableSpec]:
        """Return the specs of the tables to train, by name."""

    def lookups(self, targets_GM: tf.Tensor, vectors: int, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the ids that a batch needs, by name of the table, random samples included.

        By default there are none, because all rows are streamed.

        Args:
            targets_GM: The ids of the words to predict, int32.
            vectors: The number of hidden vectors, G N.
            seed: (2,) int64. Every random draw of the step is a function of it.

        Returns:
            Ids of any shape. Tables whose rows are streamed are left out.
        """
        return {}

    def loss(
        self, predictions: Predictions, rows: dict[str, Rows]
    ) -> tuple[tf.Tensor | float, list[Part]]:
        """Return the loss of the given rows, and parts with further losses, not yet computed.

        The whole loss is the sum of both. It is the weighted sum of -log P of each word, or of the
        term that a loss has in place of -log P.

        Args:
            rows: The rows of `lookups`, by name of the table.

        Returns:
            A float32 scalar, or 0.0 if all rows are streamed; and the parts, for `losses.stream`.
        """


class NormalizedLoss(Loss, Protocol):
    """A loss that trains a probability distribution over the words.

    `losses.inference` reads a trained one by `exact` and `word_segments`. The rows of a language
    model start by `priors`.
    """

    def priors(self, counts_V: np.ndarray) -> dict[str, np.ndarray]:
        """Return the scores that give every word its share of the text as its probability.

        Args:
            counts_V: Occurrences of the words.

        Returns:
            A score for each row of a table, (rows,) float32, by name of the table. A table is left
            out if the score is 0, or if no such score exists.
        """

    def exact(self, predictions: Predictions, gather: Gather) -> list[Part]:
        """Return parts, not yet computed, whose losses sum to the weighted -log P of each word.

        Their `loss` returns one number for each vector of a block, so `losses.stream.losses` can
        compute them. A caller must not differentiate them.

        Args:
            predictions: Groups of one vector and one word.
            gather: Reads the rows that are not streamed.
        """

    def word_segments(self, hidden_ND: tf.Tensor, gather: Gather) -> list[WordSegments]:
        """Return all words in segments, each word once."""
