"""The one-vs-all loss: a logistic regression for each label, so that a text may have several."""

from __future__ import annotations

import functools

import tensorflow as tf

from ..tables.base import TableSpec
from ..tables.initial import Constant
from ..types import Rows
from .base import Gather, Loss, Part, Predictions, WordBlock, WordSegments

_TABLE = "output"
# The most numbers of rows, and the most scores, in memory at once: 32 MB of either.
_AT_ONCE = 8 << 20


class OneVsAll(Loss):
    """The sum over all labels of -log P if a text has the label, else -log(1 - P).

    P = sigmoid(score), as in fastText's `-loss ova` (OneVsAllLoss::forward, src/loss.cc). The
    weight of a prediction applies to a label that the text has; every other label counts once. With
    `Shares`, every other label has the weight of the vector, and a label with a share of one half
    counts half as present and half as absent. A vector whose weights are all 0 is padding.
    """

    is_multi_label = True

    def __init__(self, labels: int, columns: int):
        self._labels, self._columns = labels, columns

    def tables(self) -> dict[str, TableSpec]:
        """Return the spec of a table with a row for each label, all 0 at first."""
        return {_TABLE: TableSpec(self._labels, self._columns, Constant(0.0))}

    def loss(self, predictions: Predictions, rows: dict[str, Rows]) -> tuple[float, list[Part]]:
        """Return 0 and one part with the whole loss, over all rows; the part is not yet computed.

        Args:
            predictions: Groups of one vector. The labels of a group differ from each other.
            rows: An empty dictionary.
        """
        hidden_ND, weights_NM = predictions.hidden_GND[:, 0], predictions.weights_GNM[:, 0]
        shares = predictions.shares
        if shares is None:
            present_NM = tf.cast(weights_NM > 0, tf.float32)
            vectors_N1 = tf.reduce_max(present_NM, axis=1, keepdims=True)
        else:
            vectors_N1, present_NM = shares.vectors_GN, shares.words_GNM[:, 0]
        tile = min(self._labels, _AT_ONCE // max(self._columns, hidden_ND.shape[0]))
        tiles = -(-self._labels // tile)

        def block(segment: tf.Tensor, index: tf.Tensor, carry: None) -> tuple[tf.Tensor, tf.Tensor]:
            """Return the labels of a block as ids, and the targets as positions in the block."""
            if tiles == 1:
                return tf.range(self._labels), predictions.targets_GM
            first = index * tile
            ids_U = tf.range(first, tf.minimum(first + tile, self._labels))
            return ids_U, predictions.targets_GM - first

        count = None if tiles == 1 else lambda segment: tf.constant(tiles)
        loss = functools.partial(_differentiate, vectors_N1, present_NM, weights_NM)
        return 0.0, [Part(_TABLE, hidden_ND, block, loss, tiles=count, rows=float(self._labels))]

    def word_segments(self, hidden_ND: tf.Tensor, gather: Gather) -> list[WordSegments]:
        """Return all labels in a segment (see `NormalizedLoss`); their sum is not 1."""
        step = max(1, _AT_ONCE // self._columns)
        hidden_ND = tf.cast(hidden_ND, tf.float32)

        def words(block: tf.Tensor) -> WordBlock:
            """Return the ids of a block and log P of its labels."""
            ids_M = tf.range(block * step, tf.minimum((block + 1) * step, self._labels))
            scores_NM = tf.matmul(hidden_ND, gather(_TABLE, ids_M), transpose_b=True)
            return ids_M, tf.math.log_sigmoid(scores_NM)

        blocks = -(-self._labels // step)
        return [WordSegments(tf.zeros_like(hidden_ND[:, :1]), lambda segment: (blocks, words))]


def _differentiate(
    vectors_N1: tf.Tensor,
    present_NM: tf.Tensor,
    weights_NM: tf.Tensor,
    positions_NM: tf.Tensor,
    hidden_ND: tf.Tensor,
    rows_UD: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the loss of a block of rows, a float32 scalar, and its gradients by vectors and rows.

    A vector whose weights are all 0 has neither loss nor gradient.

    Args:
        vectors_N1: The weight of each vector, float32, 0 for padding.
        present_NM: The part of it with which the vector has each of its M labels, float32.
        weights_NM: The weight of these labels in the loss, float32.
        positions_NM: The positions of the labels in the block; outside of it for another block.
    """
    block_UD = tf.cast(rows_UD, hidden_ND.dtype)
    scores_NU = tf.cast(tf.matmul(hidden_ND, block_UD, transpose_b=True), tf.float32)
    in_block_NM = (positions_NM >= 0) & (positions_NM < tf.shape(rows_UD)[0])
    # A label of another block is given any column, and has no effect there.
    columns_NM = tf.clip_by_value(positions_NM, 0, tf.shape(rows_UD)[0] - 1)
    score_NM = tf.gather(scores_NU, columns_NM, batch_dims=1)
    chance_NM = tf.sigmoid(score_NM)
    part_NM = tf.where(in_block_NM, present_NM, 0.0)
    label_NM = tf.where(in_block_NM, weights_NM, 0.0)
    # The loss as if the text had no label, corrected for the labels that it has.
    value = tf.reduce_sum(vectors_N1 * tf.nn.softplus(scores_NU)) + tf.reduce_sum(
        label_NM * tf.nn.softplus(-score_NM) - part_NM * tf.nn.softplus(score_NM)
    )
    vectors_NM = tf.range(tf.shape(positions_NM)[0])[:, tf.newaxis] + tf.zeros_like(columns_NM)
    error_NU = tf.tensor_scatter_nd_add(
        vectors_N1 * tf.sigmoid(scores_NU),
        tf.stack([vectors_NM, columns_NM], axis=2),
        label_NM * (chance_NM - 1.0) - part_NM * chance_NM,
    )
    error_NU = tf.cast(error_NU, hidden_ND.dtype)
    by_hidden_ND = tf.matmul(error_NU, block_UD)
    by_rows_UD = tf.matmul(error_NU, hidden_ND, transpose_a=True)
    return value, by_hidden_ND, by_rows_UD
