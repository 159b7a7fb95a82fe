"""One-vs-all: a logistic regression for each label by itself, so that a text may have several."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from ..tables.base import TableSpec
from ..types import Rows
from .base import Gather, Part, Predictions, WordBlock

_TABLE = "output"
# Numbers of rows, and scores, at once: 32 MB of either, as of `losses.classes.levels`.
_AT_ONCE = 8 << 20


class OneVsAll:
    """The sum over all labels of -log P(there) or -log P(not there), where P = sigmoid(score).

    As fastText's `-loss ova` (OneVsAllLoss::forward, src/loss.cc). The weight of a prediction is
    that of its label being there; the other labels count once. A vector without predictions of some
    weight is padding.

    labels: C. columns: D.
    """

    def __init__(self, labels: int, columns: int):
        self._labels, self._columns = labels, columns

    def tables(self) -> dict[str, TableSpec]:
        """A row a label; 0 at first."""
        return {_TABLE: TableSpec(self._labels, self._columns, tf.zeros)}

    def lookups(self, targets_GM: tf.Tensor, vectors: int, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Nothing: all rows are streamed."""
        return {}

    def loss(self, predictions: Predictions, rows: dict[str, Rows]) -> tuple[float, list[Part]]:
        """A part of all rows. predictions: groups of one vector, each with different labels."""
        hidden_ND, weights_NM = predictions.hidden_GND[:, 0], predictions.weights_GNM[:, 0]
        tile = min(self._labels, _AT_ONCE // max(self._columns, hidden_ND.shape[0]))
        tiles = -(-self._labels // tile)

        def block(group: tf.Tensor, index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            if tiles == 1:
                return tf.range(self._labels), predictions.targets_GM
            first = index * tile
            ids_U = tf.range(first, tf.minimum(first + tile, self._labels))
            return ids_U, predictions.targets_GM - first

        def loss(places_NM: tf.Tensor, hidden_ND: tf.Tensor, rows_UD: tf.Tensor, measured: None):
            return _total(places_NM, weights_NM, hidden_ND, rows_UD)

        count = None if tiles == 1 else lambda group: tf.constant(tiles)
        return 0.0, [Part(_TABLE, hidden_ND, 1, None, count, block, loss)]

    def word_blocks(self, hidden_ND: tf.Tensor, gather: Gather) -> Iterator[WordBlock]:
        """All labels for N vectors, as of `losses.base.NormalizedLoss`; their P do not sum to 1."""
        step = max(1, _AT_ONCE // self._columns)
        for start in range(0, self._labels, step):
            ids_M = np.arange(start, min(start + step, self._labels), dtype=np.int32)

            def log_probability(ids_M: np.ndarray = ids_M) -> np.ndarray:
                rows_MD = gather(_TABLE, tf.constant(ids_M))
                scores_NM = tf.matmul(tf.cast(hidden_ND, tf.float32), rows_MD, transpose_b=True)
                return tf.math.log_sigmoid(scores_NM).numpy()

            yield WordBlock(ids_M, np.zeros(hidden_ND.shape[0], np.float32), log_probability)


def _total(
    places_NM: tf.Tensor, weights_NM: tf.Tensor, hidden_ND: tf.Tensor, rows_UD: tf.Tensor
) -> tf.Tensor:
    """The loss of a block of rows; its gradient is made along with it, from the same scores.

    places_NM: of the labels among the rows; outside them for one of another block.
    """

    @tf.custom_gradient
    def loss(hidden_ND: tf.Tensor, rows_UD: tf.Tensor):
        block_UD = tf.cast(rows_UD, hidden_ND.dtype)
        scores_NU = tf.cast(tf.matmul(hidden_ND, block_UD, transpose_b=True), tf.float32)
        real_N1 = tf.cast(tf.reduce_any(weights_NM > 0, axis=1, keepdims=True), tf.float32)
        there_NM = (weights_NM > 0) & (places_NM >= 0) & (places_NM < tf.shape(rows_UD)[0])
        # Any column will do for a label that is not there; see `softmax._loss_and_error`.
        columns_NM = tf.clip_by_value(places_NM, 0, tf.shape(rows_UD)[0] - 1)
        score_NM = tf.gather(scores_NU, columns_NM, batch_dims=1)
        chance_NM = tf.sigmoid(score_NM)
        more_NM, once_NM = tf.where(there_NM, weights_NM, 0.0), tf.cast(there_NM, tf.float32)
        # All labels as if they were not there, and what is wrong with that for those that are.
        value = tf.reduce_sum(real_N1 * tf.nn.softplus(scores_NU)) + tf.reduce_sum(
            more_NM * tf.nn.softplus(-score_NM) - once_NM * tf.nn.softplus(score_NM)
        )
        vectors_NM = tf.range(tf.shape(places_NM)[0])[:, tf.newaxis] + tf.zeros_like(columns_NM)
        error_NU = tf.tensor_scatter_nd_add(
            real_N1 * tf.sigmoid(scores_NU),
            tf.stack([vectors_NM, columns_NM], axis=2),
            more_NM * (chance_NM - 1.0) - once_NM * chance_NM,
        )
        error_NU = tf.cast(error_NU, hidden_ND.dtype)
        by_hidden_ND = tf.matmul(error_NU, block_UD)
        by_rows_UD = tf.cast(tf.matmul(error_NU, hidden_ND, transpose_a=True), tf.float32)

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return tf.cast(upstream, by_hidden_ND.dtype) * by_hidden_ND, upstream * by_rows_UD

        return value, gradient

    return loss(hidden_ND, rows_UD)
