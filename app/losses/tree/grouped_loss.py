"""The loss of hierarchical softmax for groups of vectors and words: one product for each group."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from ...system.gradients import custom_gradient
from ...types import HOST, Rows
from ..base import Part, Predictions
from .huffman import Code
from .paths import Entries, GroupNodes, GroupPaths, pad

# Nodes at fewer steps from the root are scored with every vector. Up to about 100 nodes a depth,
# one matrix product takes less time than to gather the one node of a depth that each word needs
# (measured with 100 and 300 columns on two cores).
_SHARED = 7
# The vectors of a group are padded to a multiple of this: loops of XLA and products over 26 numbers
# take longer than over 32.
_LANES = 16


class GroupedLoss:
    """The losses of groups of vectors and words, along the paths of the words."""

    def __init__(self, code: Code):
        self._code, self._shared = code, min(_SHARED, code.depth)
        self._upper_nodes = max(int(code.inner_E[: self._shared].sum()), 1)
        self._upper_weights = tf.function(self._weigh_upper, autograph=False, jit_compile=True)

    def parts(self, predictions: Predictions, table: str, gathered: int) -> list[Part]:
        """Return one or two parts, not yet computed, whose losses sum to the weighted -log P.

        There are two if the rows of all depths are too many to be gathered at once: one of the
        nodes near the root, and one with a tile for every few depths below them.

        Args:
            gathered: The most numbers that are gathered at once.
        """
        vectors = predictions.unique or _all_vectors(predictions)
        targets_GM = _wanted_words(predictions)
        paths = GroupPaths(self._code, targets_GM, self._shared)
        pairs = _Pairs.sort(predictions, vectors, paths)
        depths = self._code.depth - self._shared
        words = targets_GM.shape.num_elements() or tf.maximum(tf.size(targets_GM), 1)
        depths_at_once = gathered // (words * predictions.hidden_GND.shape[2])

        def upper_block(group: tf.Tensor, tile: tf.Tensor) -> tuple[tf.Tensor, _Labels]:
            """Return the table rows of the nodes near the root, and no further nodes."""
            return tf.range(self._upper_nodes), _Labels(True, None)

        def lower_block(group: tf.Tensor, tile: tf.Tensor) -> tuple[tf.Tensor, _Labels]:
            """Return the table rows of the paths at the depths of a tile, and their entries."""
            nodes = paths.nodes(self._shared + tile * depths_at_once, depths_at_once)
            return nodes.rows_U, _Labels(False, nodes)

        def all_nodes(group: tf.Tensor, tile: tf.Tensor) -> tuple[tf.Tensor, _Labels]:
            """Return the rows of the nodes near the root, then of those on the paths."""
            nodes = paths.nodes(self._shared, depths_at_once)
            rows_U = tf.concat([tf.range(self._upper_nodes), nodes.rows_U], axis=0)
            return rows_U, _Labels(True, nodes)

        def loss(labels: _Labels, hidden_ND: tf.Tensor, rows_UD: tf.Tensor, carry_N: None):
            """Return the loss of all vectors at the nodes of a block, a float32 scalar."""
            return self._loss(hidden_ND, rows_UD, labels, pairs)

        upper_part = Part(table, vectors.values_UD, upper_block, loss)
        if not depths:
            return [upper_part]
        if isinstance(depths_at_once, int) and depths_at_once >= depths:
            depths_at_once = depths
            return [upper_part._replace(block=all_nodes)]
        depths_at_once = tf.clip_by_value(depths_at_once, 1, depths)
        tiles = -(-depths // depths_at_once)
        return [upper_part, upper_part._replace(block=lower_block, tiles=lambda group: tiles)]

    def _loss(
        self, hidden_ND: tf.Tensor, rows_UD: tf.Tensor, labels: _Labels, pairs: _Pairs
    ) -> tf.Tensor:
        """Return the loss of all vectors at the nodes of a block, a float32 scalar."""
        count = self._upper_nodes if labels.has_upper else 0
        blocks = [] if labels.nodes is None else labels.nodes.blocks

        @custom_gradient
        def total(hidden_ND: tf.Tensor, rows_UD: tf.Tensor):
            """Return the loss, with gradients by the vectors and by the rows."""
            narrow_UD = tf.cast(rows_UD, pairs.dtype)
            hidden_VD = pad(tf.cast(hidden_ND, pairs.dtype), 0, is_coarse=True)
            scored, rows, indices = [], [], []
            if count:
                weights = self._upper_weights(*pairs.upper, hidden_VD[:, 0])
                scored.append(_score_upper(narrow_UD[:count], hidden_VD, *weights))
            for entries, block in zip(blocks, pairs.blocks, strict=False):
                (index_GN, padded_GN), weights_GMN = block
                rows.append(entries.row_GK + count)
                indices.append(index_GN)
                gathered = tf.gather(narrow_UD, rows[-1]), tf.gather(hidden_VD, padded_GN)
                scored.append(_score_lower(*gathered, entries, weights_GMN))

            def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                """Return the gradients by the vectors and by the rows, float32."""
                by_both = [gradients(upstream) for _, gradients in scored]
                if not count:
                    by_both.insert(0, (tf.zeros_like(hidden_VD), narrow_UD[:0]))
                by_hidden, by_rows = zip(*by_both, strict=True)
                by_hidden_VD = _sum_rows(by_hidden[0], hidden_VD[:, 0], *indices, *by_hidden[1:])
                mask_U = pad(narrow_UD[:, 0], 0, is_coarse=True)
                by_rows_UD = _sum_rows(by_rows[0], mask_U, *rows, *by_rows[1:])
                return by_hidden_VD[: tf.shape(hidden_ND)[0]], by_rows_UD[: tf.shape(rows_UD)[0]]

            # TensorFlow removes the losses from a graph that does not use them.
            return tf.add_n([loss for loss, _ in scored]), gradient

        return total(hidden_ND, rows_UD)

    def _weigh_upper(
        self, cut_GM: tf.Tensor, index_GN: tf.Tensor, weights_GMN: tf.Tensor, mask_V: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the weights with which vectors visit the nodes near the root, and go left there.

        Args:
            cut_GM: The position of each word at the depth below them (see `GroupPaths`).
            index_GN: The unique vector of each vector, int32.
            weights_GMN: The weight of each pair, float32.
            mask_V: Any values; only their number counts, which is of the unique vectors.

        Returns:
            The weights at the nodes, by row, of both kinds, (K, V) float32 each.
        """
        code, depth, count = self._code, self._shared, tf.shape(mask_V)[0]
        inner, ends_E = int(code.inner_E[depth]), [int(end) for end in code.ends_E]
        cuts = inner + ends_E[depth]
        cell_GMN = cut_GM[:, :, tf.newaxis] * count + index_GN[:, tf.newaxis]
        cell_P1, weights_P = tf.reshape(cell_GMN, (-1, 1)), tf.reshape(weights_GMN, [-1])
        sums_N = tf.tensor_scatter_nd_add(tf.zeros([cuts * count]), cell_P1, weights_P)
        sums_CV = tf.reshape(sums_N, (cuts, count))
        # From the deepest nodes up: the weight at a node is the sum of the weights at its children.
        visits_IV, visits, lefts = sums_CV[:inner], [], []
        for above in reversed(range(depth)):
            words_MV = sums_CV[inner + ends_E[above] : inner + ends_E[above + 1]]
            children_IV = tf.concat([visits_IV, words_MV[::-1]], axis=0)
            lefts.append(children_IV[::2])
            visits_IV = lefts[-1] + children_IV[1::2]
            visits.append(visits_IV)
        return tf.concat(visits[::-1], axis=0), tf.concat(lefts[::-1], axis=0)


# A loss, and a function from its upstream gradient to the gradients by vectors and by rows.
_Scored = tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]


class _Labels(NamedTuple):
    """The nodes of a block.

    Attributes:
        has_upper: Whether the first rows are those of the nodes near the root.
        nodes: The nodes further from the root. None if the block has none.
    """

    has_upper: bool
    nodes: GroupNodes | None


class _Pairs(NamedTuple):
    """The pairs of vectors and words, with the groups in the order of `GroupPaths.order_G`.

    Attributes:
        upper: For all groups the positions of the words (`GroupPaths.cut_GM`), the unique vector of
            each vector, (G, N) int32, and the weights of the pairs, (G, M, N) float32.
        dtype: The dtype of the products.
        blocks: For each block of groups (see `GroupNodes`), the indices of the vectors without and
            with padding, and the weights with padding.
    """

    upper: tuple[tf.Tensor, tf.Tensor, tf.Tensor]
    dtype: tf.DType
    blocks: list[tuple[tuple[tf.Tensor, tf.Tensor], tf.Tensor]]

    @classmethod
    def sort(cls, predictions: Predictions, vectors: Rows, paths: GroupPaths) -> _Pairs:
        """Return the pairs of some predictions."""
        with tf.device(HOST):
            size = predictions.weights_GNM.shape[1]
            index_GN = tf.gather(tf.reshape(vectors.inverse_N, (-1, size)), paths.order_G)
            edges = [[0, 0], [0, -size % _LANES]]
            indices = zip(paths.split(index_GN), paths.split(tf.pad(index_GN, edges)), strict=True)
        weights_GMN = tf.transpose(predictions.weights_GNM, (0, 2, 1))
        weights_GMN = tf.gather(weights_GMN, paths.order_G)
        padded_GMN = tf.pad(weights_GMN, [[0, 0], *edges])
        blocks = list(zip(indices, paths.split(padded_GMN), strict=True))
        upper = paths.cut_GM, index_GN, weights_GMN
        return cls(upper, predictions.hidden_GND.dtype, blocks)


def _all_vectors(predictions: Predictions) -> Rows:
    """Return all hidden vectors as unique vectors."""
    hidden_GND = predictions.hidden_GND
    hidden_ND = tf.reshape(hidden_GND, (-1, hidden_GND.shape[2]))
    with tf.device(HOST):
        return Rows(hidden_ND, tf.range(tf.reduce_prod(tf.shape(predictions.weights_GNM)[:2])))


def _wanted_words(predictions: Predictions) -> tf.Tensor:
    """Return the words of each group, (G, M), with word 0 for a word that none is to predict.

    Word 0 has the shortest path.
    """
    with tf.device(HOST):  # with the ids
        is_target_GM = tf.reduce_any(predictions.weights_GNM != 0, axis=1)
        return tf.where(is_target_GM, predictions.targets_GM, 0)


def _score_upper(
    rows_KD: tf.Tensor, hidden_VD: tf.Tensor, visits_KV: tf.Tensor, lefts_KV: tf.Tensor
) -> _Scored:
    """Score the unique vectors with the nodes near the root.

    Args:
        rows_KD: The rows of the nodes.
        hidden_VD: The vectors.
        visits_KV: The weights with which vectors visit nodes, float32.
        lefts_KV: The weights with which vectors go left, float32.

    Returns:
        The loss, and a function from its upstream gradient to the gradients by vectors and rows.
    """
    scores_KV = tf.matmul(rows_KD, hidden_VD, transpose_b=True)

    def gradients(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        error_KV = _upper_errors(scores_KV, visits_KV, lefts_KV, upstream)
        by_hidden_VD = tf.matmul(error_KV, rows_KD, transpose_a=True)
        return by_hidden_VD, tf.matmul(error_KV, hidden_VD)

    return _upper_loss(scores_KV, visits_KV, lefts_KV), gradients


def _score_lower(
    rows_GKD: tf.Tensor, hidden_GND: tf.Tensor, entries: Entries, weights_GMN: tf.Tensor
) -> _Scored:
    """Score the vectors of a block of groups with the nodes on the paths of their words.

    Scores are by node and vector, which suits the two products of the gradient. The result is as of
    `_score_upper`.
    """
    scores_GKN = tf.matmul(rows_GKD, hidden_GND, transpose_b=True)
    turns = weights_GMN, entries.word_GK, entries.left_GK

    def gradients(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        error_GKN = _lower_errors(scores_GKN, *turns, upstream)
        by_hidden_GND = tf.matmul(error_GKN, rows_GKD, transpose_a=True)
        return by_hidden_GND, tf.matmul(error_GKN, hidden_GND)

    return _lower_loss(scores_GKN, *turns), gradients


# Not one function with `_weigh_upper`: XLA would compute the weights again for each score.
@tf.function(autograph=False, jit_compile=True)
def _upper_errors(
    scores_KV: tf.Tensor, visits_KV: tf.Tensor, lefts_KV: tf.Tensor, upstream: tf.Tensor
) -> tf.Tensor:
    """Return the gradient by the scores of unique vectors with nodes, (K, V), of their dtype.

    Args:
        scores_KV: The scores.
        visits_KV: The weights with which vectors visit nodes (see `_score_upper`).
        lefts_KV: The weights with which vectors go left.
        upstream: The gradient by the loss, a scalar.
    """
    chance_KV = tf.sigmoid(_widen(scores_KV))
    return _narrow(upstream * (visits_KV * chance_KV - lefts_KV), scores_KV.dtype)


@tf.function(autograph=False, jit_compile=True)  # one pass instead of seven
def _lower_errors(
    scores_GKN: tf.Tensor,
    weights_GMN: tf.Tensor,
    word_GK: tf.Tensor,
    left_GK: tf.Tensor,
    upstream: tf.Tensor,
) -> tf.Tensor:
    """Return the gradient by the scores of entries and vectors, (G, K, N), of their dtype.

    Args:
        scores_GKN: The scores.
        weights_GMN: The weight of each pair, float32.
        word_GK: The field of `Entries`.
        left_GK: The field of `Entries`.
        upstream: The gradient by the loss, a scalar.
    """
    weights_GKN = upstream * _lower_weights(weights_GMN, word_GK)
    chance_GKN = tf.sigmoid(_widen(scores_GKN))
    error_GKN = weights_GKN * (chance_GKN - tf.cast(left_GK, tf.float32)[:, :, tf.newaxis])
    return _narrow(error_GKN, scores_GKN.dtype)


@tf.function(autograph=False, jit_compile=True)  # one pass instead of eight
def _lower_loss(
    scores_GKN: tf.Tensor, weights_GMN: tf.Tensor, word_GK: tf.Tensor, left_GK: tf.Tensor
) -> tf.Tensor:
    """Return the sum of the losses at the nodes of entries, a float32 scalar.

    Args:
        scores_GKN: The scores.
        weights_GMN: The weight of each pair, float32.
        word_GK: The field of `Entries`.
        left_GK: The field of `Entries`.
    """
    scores, is_left_GK1 = _widen(scores_GKN), left_GK[:, :, tf.newaxis] > 0
    terms_GKN = tf.nn.softplus(tf.where(is_left_GK1, -scores, scores))
    return tf.reduce_sum(tf.reduce_sum(_lower_weights(weights_GMN, word_GK) * terms_GKN, axis=2))


@tf.function(autograph=False, jit_compile=True)
def _upper_loss(scores_KV: tf.Tensor, visits_KV: tf.Tensor, lefts_KV: tf.Tensor) -> tf.Tensor:
    """Return the sum of the losses at the nodes near the root, a float32 scalar.

    The arguments are those of `upper_errors`.
    """
    scores, rights_KV = _widen(scores_KV), visits_KV - lefts_KV
    terms_KV = lefts_KV * tf.nn.softplus(-scores) + rights_KV * tf.nn.softplus(scores)
    return tf.reduce_sum(tf.reduce_sum(terms_KV, axis=1))


def _lower_weights(weights_GMN: tf.Tensor, word_GK: tf.Tensor) -> tf.Tensor:
    """Return each vector's weight for the word of each entry, (G, K, N); 0 for padding entries."""
    padded_GMN = tf.pad(weights_GMN, [[0, 0], [0, 1], [0, 0]])
    return tf.gather(padded_GMN, word_GK, batch_dims=1)


@tf.function(autograph=False, jit_compile=True)
def _sum_rows(first_KD: tf.Tensor, mask_U: tf.Tensor, *indices_and_values: tf.Tensor) -> tf.Tensor:
    """Return the sums of values by row, added in float32, (U, D).

    Args:
        first_KD: The first value of each of the first K rows; K may be below U.
        mask_U: Any values; only their number counts.
        *indices_and_values: The rows of further values, (G, N) int32 each; then these values,
            (G, M, D) each. Each group has one for each index, then padding.
    """
    columns = first_KD.shape[1]
    sums_UD = tf.pad(_widen(first_KD), [[0, tf.shape(mask_U)[0] - tf.shape(first_KD)[0]], [0, 0]])
    half = len(indices_and_values) // 2
    indices, values = indices_and_values[:half], indices_and_values[half:]
    for index, value in zip(indices, values, strict=True):  # a loop each, in place
        value_PD = _widen(tf.reshape(value[:, : index.shape[1]], (-1, columns)))
        sums_UD = tf.tensor_scatter_nd_add(sums_UD, tf.reshape(index, (-1, 1)), value_PD)
    return sums_UD


def _widen(values: tf.Tensor) -> tf.Tensor:
    """Return values in float32. In a loop of XLA this takes half the time of tf.cast."""
    if values.dtype != tf.bfloat16:
        return tf.cast(values, tf.float32)
    bits = tf.cast(tf.bitcast(values, tf.uint16), tf.uint32)
    return tf.bitcast(tf.bitwise.left_shift(bits, tf.constant(16, tf.uint32)), tf.float32)


def _narrow(values: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Return finite float32 values in a dtype. In a loop of XLA this is faster than tf.cast."""
    if dtype != tf.bfloat16:
        return tf.cast(values, dtype)
    bits = tf.bitcast(values, tf.uint32) + tf.constant(1 << 15, tf.uint32)  # to the nearest
    bits = tf.bitwise.right_shift(bits, tf.constant(16, tf.uint32))
    return tf.bitcast(tf.cast(bits, tf.uint16), tf.bfloat16)
