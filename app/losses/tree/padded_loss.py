"""The loss of hierarchical softmax over paths that are padded to one length, for XLA."""

from __future__ import annotations

import tensorflow as tf

from ...tables.row_reads import take
from ...types import Rows
from ..base import Part, Predictions
from .huffman import Code
from .paths import padded_paths


def vector_losses(code: Code, predictions: Predictions, rows: Rows) -> tf.Tensor:
    """Return the weighted sum of -log P of the words of each vector, (G, N) float32.

    Args:
        rows: The rows of the nodes that `padded_paths` has for the words.
    """
    rows_ND = take(rows, predictions.hidden_GND.dtype)
    return _losses(code, predictions, predictions.hidden_GND, rows_ND)


def make_part(code: Code, predictions: Predictions, table: str) -> Part:
    """Return a part, not yet computed, whose losses are the weighted -log P of the words.

    It is not to be differentiated, as a node is read once for each path that it is on.
    """
    hidden_GND = predictions.hidden_GND

    def losses(_: None, hidden_ND: tf.Tensor, rows_ND: tf.Tensor) -> tf.Tensor:
        """Return the loss of each vector, (N,) float32."""
        vectors_GND = tf.reshape(hidden_ND, (-1, *hidden_GND.shape[1:]))
        found_GN = _losses(code, predictions, vectors_GND, tf.cast(rows_ND, hidden_ND.dtype))
        return tf.reshape(found_GN, [-1])

    def block(*_: tf.Tensor) -> tuple[tf.Tensor, None]:
        """Return the rows of all nodes, the root after the end of a path."""
        rows_N = tf.reshape(padded_paths(code, predictions.targets_GM)[0], [-1])
        return tf.where(rows_N == tf.int32.max, 0, rows_N), None

    return Part(table, tf.reshape(hidden_GND, (-1, hidden_GND.shape[2])), block, losses)


def _losses(
    code: Code, predictions: Predictions, hidden_GND: tf.Tensor, rows_ND: tf.Tensor
) -> tf.Tensor:
    """Return the loss of each vector, (G, N) float32.

    All vectors of a group are scored with all nodes of its words in one product.

    Args:
        rows_ND: The row of each node of `padded_paths`, in order; any row where a path has ended.
    """
    vectors, columns = hidden_GND.shape[1:]
    turns_GMC = padded_paths(code, predictions.targets_GM)[1]
    words, depths = turns_GMC.shape[1:]
    rows_GKD = tf.reshape(rows_ND, (-1, words * depths, columns))
    scores_GNK = tf.cast(tf.matmul(hidden_GND, rows_GKD, transpose_b=True), tf.float32)
    scores_GNMC = tf.reshape(scores_GNK, (-1, vectors, words, depths))
    turns_G1MC = turns_GMC[:, tf.newaxis]
    terms_GNMC = tf.abs(turns_G1MC) * tf.nn.softplus(-turns_G1MC * scores_GNMC)
    terms_GNM = tf.reduce_sum(terms_GNMC, axis=3)
    return tf.reduce_sum(predictions.weights_GNM * terms_GNM, axis=2)
