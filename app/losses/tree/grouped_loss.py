"""The loss of hierarchical softmax for groups of vectors and words: one product for each group."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from ...types import HOST
from ..base import Part, Predictions
from . import subtrees
from .group_paths import GroupNodes, GroupPaths
from .huffman import Code

# Nodes at fewer steps from the root are scored with every vector. Up to about 100 nodes a depth,
# one matrix product takes less time than to gather the one node of a depth that each word needs
# (measured with 100 and 300 columns on two cores).
_SHARED = 7


class GroupedLoss:
    """The losses of groups of vectors and words, along the paths of the words.

    Args:
        code: The code of the vocabulary.
    """

    def __init__(self, code: Code):
        self._code, self._shared = code, min(_SHARED, code.depth)
        turns = subtrees.path_turns(code, self._shared)
        self._upper_nodes = turns.shape[1] // 2
        # A variable, because a graph holds a constant once for each of its steps.
        self._turns = tf.Variable(turns, trainable=False)

    def parts(self, predictions: Predictions, table: str, gathered: int) -> list[Part]:
        """Return one or two parts, not yet computed, whose losses sum to the weighted -log P.

        There are two if the rows of all depths are too many to be gathered at once: one of the
        nodes near the root, and one with a tile for every few depths below them.

        Args:
            predictions: The vectors, words and weights.
            table: The name of the table of nodes.
            gathered: The most numbers that are gathered at once.
        """
        hidden_ND = tf.reshape(predictions.hidden_GND, (-1, predictions.hidden_GND.shape[2]))
        targets_GM, weights_GNM = _wanted_words(predictions), predictions.weights_GNM
        paths = GroupPaths(self._code, targets_GM)
        depths = self._code.depth - self._shared
        words = targets_GM.shape.num_elements() or tf.size(targets_GM)
        depths_at_once = gathered // (words * hidden_ND.shape[1])

        def upper_block(group: tf.Tensor, tile: tf.Tensor) -> tuple[tf.Tensor, _Labels]:
            """Return the table rows of the nodes near the root, and the turns there as labels."""
            turns_GMK = tf.cast(self._turns, hidden_ND.dtype)
            turns_GMK = tf.gather(turns_GMK, paths.cut(self._shared))
            turns_GNK = tf.matmul(tf.cast(weights_GNM, hidden_ND.dtype), turns_GMK)
            return tf.range(self._upper_nodes), _Labels(turns_GNK, None)

        def lower_block(group: tf.Tensor, tile: tf.Tensor) -> tuple[tf.Tensor, _Labels]:
            """Return the table rows of the paths at the depths of a tile, and their labels."""
            nodes = paths.nodes(self._shared + tile * depths_at_once, depths_at_once)
            return nodes.rows_U, _Labels(None, nodes)

        def all_nodes(group: tf.Tensor, tile: tf.Tensor) -> tuple[tf.Tensor, _Labels]:
            """Return rows and labels of the nodes near the root, then of those on the paths."""
            upper_K, (turns_GNK, _) = upper_block(group, tile)
            lower_U, (_, nodes) = lower_block(group, tile)
            return tf.concat([upper_K, lower_U], axis=0), _Labels(turns_GNK, nodes)

        def loss(labels: _Labels, hidden_ND: tf.Tensor, rows_UD: tf.Tensor, carry_N: None):
            """Return the loss of each vector at the nodes of a block, (N,) float32."""
            losses_GN = _losses(hidden_ND, weights_GNM, labels, rows_UD)
            return tf.reshape(losses_GN, [-1])

        upper_part = Part(
            table, hidden_ND, groups=1, members=None, tiles=None, block=upper_block, loss=loss
        )
        if not depths:
            return [upper_part]
        if isinstance(depths_at_once, int) and depths_at_once >= depths:
            return [upper_part._replace(block=all_nodes)]
        depths_at_once = tf.clip_by_value(depths_at_once, 1, depths)
        tiles = -(-depths // depths_at_once)
        return [upper_part, upper_part._replace(block=lower_block, tiles=lambda group: tiles)]


class _Labels(NamedTuple):
    """The turns, left or right, that the vectors are to predict at the nodes of a block.

    Attributes:
        turns_GNK: For the K / 2 nodes near the root, the weights with which each vector goes left,
            followed by the weights with which it goes right, in the dtype of the products. None if
            the block has no such nodes.
        nodes: The nodes further from the root. None if the block has none.
    """

    turns_GNK: tf.Tensor | None
    nodes: GroupNodes | None


def _wanted_words(predictions: Predictions) -> tf.Tensor:
    """Return the words of each group, (G, M), with word 0 for a word that none is to predict.

    Word 0 has the shortest path.
    """
    with tf.device(HOST):  # with the ids
        is_target_GM = tf.reduce_any(predictions.weights_GNM != 0, axis=1)
        return tf.where(is_target_GM, predictions.targets_GM, 0)


def _losses(
    hidden_ND: tf.Tensor, weights_GNM: tf.Tensor, labels: _Labels, rows_UD: tf.Tensor
) -> tf.Tensor:
    """Return the loss of each vector at the nodes of a block, (G, N) float32."""
    hidden_GND = tf.reshape(hidden_ND, (-1, weights_GNM.shape[1], hidden_ND.shape[1]))
    turns_GNK, nodes = labels
    if nodes is None:
        return _upper_losses(hidden_GND, tf.cast(rows_UD, hidden_GND.dtype), turns_GNK)
    upper_count = 0 if turns_GNK is None else turns_GNK.shape[2] // 2
    upper_KD, nodes_GKD = _split_rows(rows_UD, upper_count, nodes, hidden_GND.dtype)
    losses_GN = _lower_losses(hidden_GND, nodes_GKD, nodes, weights_GNM)
    if turns_GNK is not None:
        losses_GN += _upper_losses(hidden_GND, upper_KD, turns_GNK)
    return losses_GN


def _split_rows(
    rows_UD: tf.Tensor, upper_count: int, nodes: GroupNodes, dtype: tf.DType
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the rows of the nodes near the root, and a row for each entry of `nodes`.

    The gradients of the entries that share a row are summed in float32.

    Args:
        rows_UD: The rows of a block, float32.
        upper_count: The number of rows of nodes near the root, K, which come first.
        nodes: The nodes further from the root.
        dtype: The dtype of the result.

    Returns:
        The first `upper_count` rows, (K, D), and the rows of the entries, (G, K, D), as `dtype`.
    """

    @tf.custom_gradient
    def split(rows_UD: tf.Tensor):
        """Return both results, with a gradient by the rows of the block."""

        def gradient(by_upper_KD: tf.Tensor, by_entry_GKD: tf.Tensor) -> tf.Tensor:
            by_entry_ND = tf.reshape(by_entry_GKD, (-1, rows_UD.shape[1]))
            by_entry_SD = tf.cast(tf.gather(by_entry_ND, nodes.entry_S), tf.float32)
            by_rows_UD = tf.math.segment_sum(by_entry_SD, nodes.entry_rows_S)
            return tf.concat([tf.cast(by_upper_KD, tf.float32), by_rows_UD], axis=0)

        values_UD = tf.cast(rows_UD, dtype)
        return (values_UD[:upper_count], tf.gather(values_UD, upper_count + nodes.row_GK)), gradient

    return split(rows_UD)


def _upper_losses(hidden_GND: tf.Tensor, rows_KD: tf.Tensor, turns_GNK: tf.Tensor) -> tf.Tensor:
    """Return the loss of each vector at the nodes near the root, (G, N) float32."""
    hidden_ND = tf.reshape(hidden_GND, (-1, hidden_GND.shape[2]))
    scores_NK = tf.matmul(hidden_ND, rows_KD, transpose_b=True)
    scores_GNK = tf.reshape(scores_NK, (-1, hidden_GND.shape[1], turns_GNK.shape[2] // 2))

    @tf.custom_gradient
    def losses(scores_GNK: tf.Tensor):
        """Return the losses (G, N), with a gradient by the scores."""

        def gradient(upstream_GN: tf.Tensor) -> tf.Tensor:
            return _upper_gradient(scores_GNK, turns_GNK, upstream_GN)

        left_GNK, right_GNK = tf.split(tf.cast(turns_GNK, tf.float32), 2, axis=2)
        scores = tf.cast(scores_GNK, tf.float32)
        terms_GNK = left_GNK * tf.nn.softplus(-scores) + right_GNK * tf.nn.softplus(scores)
        return tf.reduce_sum(terms_GNK, axis=2), gradient

    return losses(scores_GNK)


@tf.function(jit_compile=True, autograph=False)  # one pass instead of five
def _upper_gradient(
    scores_GNK: tf.Tensor, turns_GNK: tf.Tensor, upstream_GN: tf.Tensor
) -> tf.Tensor:
    """Return the gradient of `_upper_losses` by the scores, (G, N, K), of their dtype."""
    left_GNK, right_GNK = tf.split(tf.cast(turns_GNK, tf.float32), 2, axis=2)
    chance_GNK = tf.sigmoid(tf.cast(scores_GNK, tf.float32))
    error_GNK = (left_GNK + right_GNK) * chance_GNK - left_GNK
    return tf.cast(upstream_GN[:, :, tf.newaxis] * error_GNK, scores_GNK.dtype)


def _lower_losses(
    hidden_GND: tf.Tensor, rows_GKD: tf.Tensor, nodes: GroupNodes, weights_GNM: tf.Tensor
) -> tf.Tensor:
    """Return the loss of each vector at the nodes further from the root, (G, N) float32.

    A vector is scored with the entries of all words of its group, by its weight for each word.
    """

    @tf.custom_gradient
    def losses(scores_GKN: tf.Tensor):
        """Return the losses (G, N), with a gradient by the scores."""

        def gradient(upstream_GN: tf.Tensor) -> tf.Tensor:
            return _lower_gradient(
                scores_GKN, weights_GNM, nodes.word_GK, nodes.left_GK, nodes.real_GK, upstream_GN
            )

        scores = tf.cast(scores_GKN, tf.float32)
        weights_GKN = _lower_weights(weights_GNM, nodes.word_GK, nodes.real_GK)
        left_GK1 = nodes.left_GK[:, :, tf.newaxis] > 0
        terms_GKN = weights_GKN * tf.nn.softplus(tf.where(left_GK1, -scores, scores))
        return tf.reduce_sum(terms_GKN, axis=1), gradient

    # Scores by node and vector, not by vector and node: this order suits the two products of the
    # gradient.
    return losses(tf.matmul(rows_GKD, hidden_GND, transpose_b=True))


@tf.function(jit_compile=True, autograph=False)  # one pass instead of seven
def _lower_gradient(
    scores_GKN: tf.Tensor,
    weights_GNM: tf.Tensor,
    word_GK: tf.Tensor,
    left_GK: tf.Tensor,
    real_GK: tf.Tensor,
    upstream_GN: tf.Tensor,
) -> tf.Tensor:
    """Return the gradient of `_lower_losses` by the scores, (G, K, N), of their dtype."""
    weights_GKN = _lower_weights(weights_GNM, word_GK, real_GK) * upstream_GN[:, tf.newaxis]
    chance_GKN = tf.sigmoid(tf.cast(scores_GKN, tf.float32))
    error_GKN = weights_GKN * (chance_GKN - tf.cast(left_GK, tf.float32)[:, :, tf.newaxis])
    return tf.cast(error_GKN, scores_GKN.dtype)


def _lower_weights(weights_GNM: tf.Tensor, word_GK: tf.Tensor, real_GK: tf.Tensor) -> tf.Tensor:
    """Return each vector's weight for the word of each entry, (G, K, N); 0 for padding entries."""
    weights_GMN = tf.transpose(weights_GNM, (0, 2, 1))
    weights_GKN = tf.gather(weights_GMN, word_GK, batch_dims=1)
    return weights_GKN * tf.cast(real_GK, tf.float32)[:, :, tf.newaxis]
