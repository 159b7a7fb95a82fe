"""The hierarchical softmax over a Huffman tree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ...tables.base import TableSpec
from ...tables.initial import Constant
from ...types import HOST, Rows
from ..base import Gather, NormalizedLoss, Part, Predictions, WordBlock
from . import huffman, subtrees
from .paths import PathNodes, Paths

_TABLE = "output"
# Nodes at fewer steps from the root are scored with every vector. Up to about 100 nodes a depth,
# one matrix product takes less time than to gather the one node of a depth that each word needs
# (measured with 100 and 300 columns on two cores).
_SHARED = 7
# Vectors with one word each are put in groups of this size, and each is scored with the nodes of
# all words of its group: one matrix product takes less time than the few scores that are needed.
_TOGETHER = 32
# The most numbers that are gathered at once, 256 MB. If a batch needs more, the depths of the tree
# are processed some at a time.
_GATHERED = 64 << 20


class HierarchicalSoftmax(NormalizedLoss):
    """The loss of a word as the sum of logistic losses along its path through a binary tree.

    A path goes left at node n with a probability of sigmoid(h v_n) (Mikolov et al. 2013b, section
    2.1, after Morin and Bengio 2005). The tree is Huffman's, as in word2vec.c: a word of
    probability p costs about -log2 p rows, which is 11 on average in English text, and 15 for ten
    million words. It is in the canonical form, which takes no memory (see
    `losses.tree.huffman.Code`).

    Args:
        counts: (V,) occurrences of the words, descending.
        columns: The columns of a vector, D.
    """

    is_likelihood = True

    def __init__(self, counts: np.ndarray, columns: int):
        self._code = huffman.canonical_code(counts)
        self._columns = columns
        self._shared = min(_SHARED, self._code.depth)
        turns = subtrees.path_turns(self._code, self._shared)
        self._upper_nodes = turns.shape[1] // 2
        # A variable, because a graph holds a constant once for each of its steps.
        self._turns = tf.Variable(turns, trainable=False)

    def tables(self) -> dict[str, TableSpec]:
        """Return the spec of a table with a row for each inner node, 0 at first (word2vec.c)."""
        rows = max(int(self._code.inner_E.sum()), 1)  # a table needs a row, even for a single word
        return {_TABLE: TableSpec(rows, self._columns, Constant(0.0))}

    def loss(self, predictions: Predictions, rows: dict[str, Rows]) -> tuple[float, list[Part]]:
        """Return 0, and the parts of `exact`, which hold the whole loss."""
        return 0.0, self.exact(predictions, rows)

    def exact(self, predictions: Predictions, rows: dict[str, Rows]) -> list[Part]:
        """Return one or two parts, not yet computed, whose losses sum to the weighted -log P.

        There are two if the rows of all depths are too many to be gathered at once: one of the
        nodes near the root, and one with a tile for every few depths below them. Each gives a loss
        for each vector and can be differentiated. `rows` is not used.
        """
        hidden_ND = tf.reshape(predictions.hidden_GND, (-1, self._columns))
        targets_GM, weights_GNM = _regroup(predictions)
        paths = Paths(self._code, targets_GM)
        depths = self._code.depth - self._shared
        words = targets_GM.shape.num_elements() or tf.size(targets_GM)
        depths_at_once = _GATHERED // (words * self._columns)

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
            return tf.reshape(losses_GN, [-1])[: tf.shape(hidden_ND)[0]]

        upper_part = Part(
            _TABLE, hidden_ND, groups=1, members=None, tiles=None, block=upper_block, loss=loss
        )
        if not depths:
            return [upper_part]
        if isinstance(depths_at_once, int) and depths_at_once >= depths:
            return [upper_part._replace(block=all_nodes)]
        depths_at_once = tf.clip_by_value(depths_at_once, 1, depths)
        tiles = -(-depths // depths_at_once)
        return [upper_part, upper_part._replace(block=lower_block, tiles=lambda group: tiles)]

    def priors(self, counts_V: np.ndarray) -> dict[str, np.ndarray]:
        """Return no scores: at each node of Huffman's tree both turns are about as frequent."""
        return {}

    def word_blocks(self, hidden_ND: tf.Tensor, gather: Gather) -> Iterator[WordBlock]:
        """Yield the words near the root, then the words of each subtree; see `NormalizedLoss`.

        The bound of a subtree is the log-probability of its root.
        """
        hidden_ND = tf.cast(hidden_ND, tf.float32).numpy()
        return subtrees.word_blocks(self._code, hidden_ND, lambda rows_U: gather(_TABLE, rows_U))


class _Labels(NamedTuple):
    """The turns, left or right, that the vectors are to predict at the nodes of a block.

    Attributes:
        turns_GNK: For the K / 2 nodes near the root, the weights with which each vector goes left,
            followed by the weights with which it goes right, in the dtype of the products. None if
            the block has no such nodes.
        nodes: The nodes further from the root. None if the block has none.
    """

    turns_GNK: tf.Tensor | None
    nodes: PathNodes | None


def _regroup(predictions: Predictions) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the words of each group, (G, M), and the weights, (G, N, M).

    Groups of one vector and one word are joined to groups of `_TOGETHER`, the last one padded with
    weights of 0. A word that no vector is to predict is replaced by word 0, which has the shortest
    path.
    """
    hidden_GND, targets_GM, weights_GNM = predictions
    with tf.device(HOST):  # with the ids
        if hidden_GND.shape[1] == targets_GM.shape[1] == 1:
            targets_GM = _in_groups(targets_GM, _TOGETHER)[:, :, 0]
            weights_GM = _in_groups(weights_GNM[:, 0], _TOGETHER)[:, :, 0]
            is_target_GM = weights_GM != 0
        else:
            weights_GM, is_target_GM = None, tf.reduce_any(weights_GNM != 0, axis=1)
        targets_GM = tf.where(is_target_GM, targets_GM, 0)
    if weights_GM is not None:  # word n of a group belongs to vector n
        weights_GNM = weights_GM[:, tf.newaxis] * tf.eye(_TOGETHER)
    return targets_GM, weights_GNM


def _in_groups(values_ND: tf.Tensor, size: int) -> tf.Tensor:
    """Return the values in at least one group of `size`, (G, size, D), padded with zeros."""
    count = values_ND.shape[0] or tf.shape(values_ND)[0]
    groups = -(-(values_ND.shape[0] or tf.maximum(count, 1)) // size)
    padded_ND = tf.pad(values_ND, [[0, groups * size - count], [0, 0]])
    return tf.reshape(padded_ND, (-1, size, values_ND.shape[1]))


def _losses(
    hidden_ND: tf.Tensor, weights_GNM: tf.Tensor, labels: _Labels, rows_UD: tf.Tensor
) -> tf.Tensor:
    """Return the loss of each vector at the nodes of a block, (G, N) float32, 0 for padding."""
    hidden_GND = _in_groups(hidden_ND, weights_GNM.shape[1])
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
    rows_UD: tf.Tensor, upper_count: int, nodes: PathNodes, dtype: tf.DType
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
    hidden_GND: tf.Tensor, rows_GKD: tf.Tensor, nodes: PathNodes, weights_GNM: tf.Tensor
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
