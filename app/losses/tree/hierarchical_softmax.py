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
from . import huffman, path_scores, subtrees
from .paths import PathNodes, Paths, pad

_TABLE = "output"
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

    def tables(self) -> dict[str, TableSpec]:
        """Return the spec of a table with a row for each inner node, 0 at first (word2vec.c)."""
        rows = max(int(self._code.inner_E.sum()), 1)  # a table needs a row, even for a single word
        return {_TABLE: TableSpec(rows, self._columns, Constant(0.0))}

    def loss(self, predictions: Predictions, rows: dict[str, Rows]) -> tuple[float, list[Part]]:
        """Return 0, and the parts of `exact`, which hold the whole loss."""
        return 0.0, self.exact(predictions, rows)

    def exact(self, predictions: Predictions, rows: dict[str, Rows]) -> list[Part]:
        """Return a part, not yet computed, whose losses sum to the weighted -log P.

        It has a tile for every few depths of the tree if the rows of all depths are too many to be
        gathered at once. It gives a loss for each vector and can be differentiated. `rows` is not
        used.
        """
        hidden_ND = tf.reshape(predictions.hidden_GND, (-1, self._columns))
        ids_M, pairs = _sorted_pairs(predictions)
        paths = Paths(self._code, ids_M)
        depths = max(self._code.depth, 1)
        words = predictions.targets_GM.shape.num_elements()
        if words is None:
            words = tf.maximum(tf.size(predictions.targets_GM), 1)
            depths_at_once = tf.clip_by_value(_GATHERED // (words * self._columns), 1, depths)
        else:
            depths_at_once = min(max(_GATHERED // (max(words, 1) * self._columns), 1), depths)

        def block(group: tf.Tensor, tile: tf.Tensor) -> tuple[tf.Tensor, _Labels]:
            """Return the table rows of the paths at the depths of a tile, and their labels."""
            nodes = paths.nodes(tile * depths_at_once, depths_at_once)
            return nodes.rows_U, _label(nodes, pairs)

        def loss(labels: _Labels, hidden_ND: tf.Tensor, rows_UD: tf.Tensor, carry_N: None):
            """Return the loss of each vector at the nodes of a block, (N,) float32."""
            return _losses(tf.cast(hidden_ND, tf.float32), rows_UD, labels, pairs)

        part = Part(_TABLE, hidden_ND, groups=1, members=None, tiles=None, block=block, loss=loss)
        if isinstance(depths_at_once, int) and depths_at_once == depths:
            return [part]
        return [part._replace(tiles=lambda group: -(-depths // depths_at_once))]

    def priors(self, counts_V: np.ndarray) -> dict[str, np.ndarray]:
        """Return no scores: at each node of Huffman's tree both turns are about as frequent."""
        return {}

    def word_blocks(self, hidden_ND: tf.Tensor, gather: Gather) -> Iterator[WordBlock]:
        """Yield the words near the root, then the words of each subtree; see `NormalizedLoss`.

        The bound of a subtree is the log-probability of its root.
        """
        hidden_ND = tf.cast(hidden_ND, tf.float32).numpy()
        return subtrees.word_blocks(self._code, hidden_ND, lambda rows_U: gather(_TABLE, rows_U))


class _Pairs(NamedTuple):
    """The pairs of a vector and a word that it is to predict, in the order of the sorted words.

    Attributes:
        words_P: The index of each pair's word among the sorted words, int32. None if pair p has
            word p.
        owners_P: The index of each pair's vector, int32.
        weights_P: The weight of each pair, float32.
        pairs_N: The only pair of each vector, int32. None if a vector may have several.
    """

    words_P: tf.Tensor | None
    owners_P: tf.Tensor
    weights_P: tf.Tensor
    pairs_N: tf.Tensor | None


def _sorted_pairs(predictions: Predictions) -> tuple[tf.Tensor, _Pairs]:
    """Return the words by descending id, (M,), and the pairs in the order of their words.

    Both are padded by words of id -1 and pairs of weight 0.
    """
    hidden_GND, targets_GM, weights_GNM = predictions
    vectors, words = hidden_GND.shape[1], targets_GM.shape[1]
    with tf.device(HOST):
        weights_MN = tf.reshape(tf.transpose(weights_GNM, (0, 2, 1)), (-1, vectors))
        is_target_M = tf.reduce_any(weights_MN != 0, axis=1)
        ids_M = tf.where(is_target_M, tf.reshape(targets_GM, [-1]), -1)
        order_M = tf.argsort(ids_M, direction="DESCENDING", stable=True)
        ids_M, weights_MN = pad(tf.gather(ids_M, order_M), -1), tf.gather(weights_MN, order_M)
        if vectors == words == 1:
            pairs_N = tf.math.invert_permutation(order_M)
            return ids_M, _Pairs(None, pad(order_M, 0), pad(weights_MN[:, 0], 0), pairs_N)
        indices_P2 = tf.where(weights_MN != 0)
        words_P, vector_P = tf.unstack(tf.cast(indices_P2, tf.int32), axis=1)
        owners_P = tf.gather(order_M // words * vectors, words_P) + vector_P
        weights_P = tf.gather_nd(weights_MN, indices_P2)
        return ids_M, _Pairs(pad(words_P, 0), pad(owners_P, 0), pad(weights_P, 0), None)


class _Labels(NamedTuple):
    """The nodes of a block on the paths of all pairs, and the turns to predict there.

    Attributes:
        row_PC: The index of each node among the rows of the block, int32; 0 where a path has ended.
        is_real_PC: Whether the path of the pair reaches the depth.
        is_left_PC: Whether the path goes left at the node.
        starts_Q: The result of `path_scores.run_starts`.
    """

    row_PC: tf.Tensor
    is_real_PC: tf.Tensor
    is_left_PC: tf.Tensor
    starts_Q: tf.Tensor


def _label(nodes: PathNodes, pairs: _Pairs) -> _Labels:
    """Return the labels of a block with the given nodes on the paths of the sorted words."""
    with tf.device(HOST):
        row_PC, left_PC = nodes.row_MC, nodes.left_MC
        if pairs.words_P is not None:
            row_PC, left_PC = tf.gather(row_PC, pairs.words_P), tf.gather(left_PC, pairs.words_P)
        is_real_PC, row_PC = row_PC >= 0, tf.maximum(row_PC, 0)
        starts_Q = path_scores.run_starts(row_PC, is_real_PC)
        return _Labels(row_PC, is_real_PC, left_PC > 0, starts_Q)


def _losses(hidden_ND: tf.Tensor, rows_UD: tf.Tensor, labels: _Labels, pairs: _Pairs) -> tf.Tensor:
    """Return the loss of each vector at the nodes of a block, (N,) float32."""
    row_PC, is_real_PC, is_left_PC, starts_Q = labels

    @tf.custom_gradient
    def losses(hidden_ND: tf.Tensor, rows_UD: tf.Tensor):
        """Return the losses (N,), with gradients by the vectors and by the rows."""
        count, columns = tf.shape(hidden_ND)[0], hidden_ND.shape[1]
        edges = [[0, 0], [0, -columns % path_scores.LANES]]
        padded_ND, padded_UD = (pad(tf.pad(values, edges), 0) for values in (hidden_ND, rows_UD))
        parts_PCL = path_scores.partial_scores(padded_ND, pairs.owners_P, padded_UD, row_PC)

        def gradient(upstream_N: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            """Return the gradients by the vectors and by the rows, float32."""
            weights_P = pairs.weights_P * tf.gather(pad(upstream_N, 0), pairs.owners_P)
            error_PC = path_scores.errors(parts_PCL, is_real_PC, is_left_PC, weights_P)
            by_pair_PD = path_scores.by_pair(padded_UD, row_PC, error_PC)
            if pairs.pairs_N is None:
                by_hidden_ND = path_scores.by_vector(padded_ND, pairs.owners_P, by_pair_PD)
            else:
                by_hidden_ND = tf.gather(by_pair_PD, pairs.pairs_N)
            by_row_UD = path_scores.by_row(
                padded_ND, pairs.owners_P, padded_UD, row_PC, error_PC, starts_Q
            )
            return by_hidden_ND[:count, :columns], by_row_UD[: tf.shape(rows_UD)[0], :columns]

        # TensorFlow removes this from a graph that does not use the loss.
        scores_PC = tf.reduce_sum(parts_PCL, axis=2)
        terms_PC = tf.nn.softplus(tf.where(is_left_PC, -scores_PC, scores_PC))
        terms_P = pairs.weights_P * tf.reduce_sum(tf.where(is_real_PC, terms_PC, 0), axis=1)
        losses_N = tf.math.unsorted_segment_sum(terms_P, pairs.owners_P, tf.shape(padded_ND)[0])
        return losses_N[:count], gradient

    return losses(hidden_ND, rows_UD)
