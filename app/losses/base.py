"""What a model knows of the loss behind it: how hidden vectors predict words out of V.

A loss that needs few rows for a batch asks for them by `lookups`, as a model does. One that needs
more rows than memory should hold at once gives `Part`s instead, which `losses.stream` works off:
block by block, each block's rows are gathered, differentiated and updated before the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from ..tables.base import TableSpec
from ..types import HOST, Rows

# Reads rows: from the name of a table and ids (U,) to (U, D) float32.
Gather = Callable[[str, tf.Tensor], tf.Tensor]


class Predictions(NamedTuple):
    """In group g, vector n is to predict word m, `weights_GNM[g, n, m]` times.

    hidden_GND: any float dtype. targets_GM: int32 ids. weights_GNM: float32, 0 for none; no
    gradient flows to them. A language model has groups of one vector and one word; skip-gram has a
    row of text as a group, so that one product scores all of its pairs.
    """

    hidden_GND: tf.Tensor
    targets_GM: tf.Tensor
    weights_GNM: tf.Tensor


class Pairs(NamedTuple):
    """Predictions as a list: vector `owners_P[p]` of hidden_ND is to predict word targets_P[p].

    owners_P: int32, or None where every vector predicts one word, in their order.
    """

    hidden_ND: tf.Tensor
    owners_P: tf.Tensor | None
    targets_P: tf.Tensor
    weights_P: tf.Tensor

    @classmethod
    def from_predictions(cls, predictions: Predictions) -> Pairs:
        """Those of some weight; all where groups are single, whose number is static."""
        hidden_GND, targets_GM, weights_GNM = predictions
        hidden_ND = tf.reshape(hidden_GND, (-1, hidden_GND.shape[2]))
        if hidden_GND.shape[1] == targets_GM.shape[1] == 1:
            return cls(hidden_ND, None, tf.reshape(targets_GM, [-1]), tf.reshape(weights_GNM, [-1]))
        with tf.device(HOST):
            where_P3 = tf.cast(tf.where(weights_GNM > 0), tf.int32)
            group_P, vector_P, word_P = tf.unstack(where_P3, axis=1)
            return cls(
                hidden_ND,
                group_P * hidden_GND.shape[1] + vector_P,
                tf.gather_nd(targets_GM, tf.stack([group_P, word_P], axis=1)),
                tf.gather_nd(weights_GNM, where_P3),
            )

    def select(self, places: tf.Tensor) -> Pairs:
        """The pairs at these places of the list."""
        owners_P = self.owners_P
        with tf.device(HOST):
            if owners_P is None:
                owners_P = tf.range(tf.shape(self.targets_P)[0])
            owners_P, targets_P = tf.gather(owners_P, places), tf.gather(self.targets_P, places)
        return Pairs(self.hidden_ND, owners_P, targets_P, tf.gather(self.weights_P, places))


class GroupMembers(NamedTuple):
    """Which hidden vectors the groups of a part concern.

    places_P: int32, those of one group after the other; one may come several times. starts_G,
    counts_G: where a group's places begin, and how many they are, int32.
    """

    places_P: tf.Tensor
    starts_G: tf.Tensor
    counts_G: tf.Tensor

    def span(self, group: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Where the places of a group begin, and where they end."""
        start = self.starts_G[group]
        return start, start + self.counts_G[group]

    def of(self, group: tf.Tensor) -> tf.Tensor:
        """The places of a group, (M,)."""
        start, stop = self.span(group)
        return self.places_P[start:stop]


class Part(NamedTuple):
    """Rows of one table in blocks, and a loss that is a sum over them.

    Blocks come in groups: all blocks of group i concern the same hidden vectors. No row is in two
    blocks, so a row is updated once in a step, and the order of blocks means nothing.

    table: its name. hidden_ND: all hidden vectors. groups: how many groups, an int or an int32
    scalar. members: the vectors that each group concerns; None where there is one group, of all.
    tiles: from a group to its number of blocks, an int32 scalar; None if that is one. block: from a
    group and a block of it to the ids of the block's rows, (U,) int32, and to whatever else the
    loss needs to know of the block. measure: a first pass over the group's blocks, which only
    reads: from what `block` told, the vectors (M, D), the rows (U, D) and what the block before
    gave, (M,), to the same for the next. before: that for the first block, a number. loss: from
    what `block` told, the vectors, the rows and what `measure` gave in the end (None without it) to
    losses of any shape; they are summed.
    """

    table: str
    hidden_ND: tf.Tensor
    groups: int | tf.Tensor
    members: GroupMembers | None
    tiles: Callable[[tf.Tensor], tf.Tensor] | None
    block: Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, Any]]
    loss: Callable[[Any, tf.Tensor, tf.Tensor, tf.Tensor | None], tf.Tensor]
    measure: Callable[[Any, tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor] | None = None
    before: float = 0.0


class WordBlock(NamedTuple):
    """A block of the words of a distribution, whose log-probabilities are not yet computed.

    ids_M: their ids. bound_N: no word of the block is more probable than that, as a logarithm; for
    each of N hidden vectors. log_probability: call it for (N, M) float32.
    """

    ids_M: np.ndarray
    bound_N: np.ndarray
    log_probability: Callable[[], np.ndarray]


class Loss(Protocol):
    """How a hidden vector predicts words."""

    def tables(self) -> dict[str, TableSpec]:
        """The tables to train, by name."""
        ...

    def lookups(self, targets_GM: tf.Tensor, vectors: int, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """The ids that a batch needs of the tables that are not streamed.

        vectors: how many hidden vectors there will be, G N. seed: (2,) int64; every random draw of
        the step is a function of it.
        """
        ...

    def loss(
        self, predictions: Predictions, rows: dict[str, Rows]
    ) -> tuple[tf.Tensor | float, list[Part]]:
        """The weighted sum of -log P over the predictions: what the rows give, and the parts.

        rows: of `lookups`. The loss of a batch is their sum.
        """
        ...


class NormalizedLoss(Loss, Protocol):
    """A loss whose probabilities sum to 1 over the words; see `losses.inference`."""

    def priors(self, counts_V: np.ndarray) -> dict[str, np.ndarray]:
        """Scores of a table's rows, (rows,) float32, with which words have their share of the text.

        Of tables left out that is the score 0, or there is no such score.
        """
        ...

    def exact(self, predictions: Predictions, rows: dict[str, Rows]) -> list[Part]:
        """Parts whose losses sum to the weighted -log P of each prediction, without an estimate.

        predictions: groups of one vector and one word. rows: of `exact_lookups`.
        """
        ...

    def exact_lookups(self) -> dict[str, tf.Tensor]:
        """The ids that `exact` and `words` need of the tables that are not streamed."""
        ...

    def word_blocks(self, hidden_ND: tf.Tensor, gather: Gather) -> Iterator[WordBlock]:
        """All words, each in one block, for N hidden vectors; runs eagerly."""
        ...
