"""The loss of hierarchical softmax for groups of vectors and words: one product for each group."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import tensorflow as tf

from ...types import HOST, Rows
from ..base import Part, Predictions
from .paths import Code, Entries, GroupPaths, group_paths, pad

# Nodes at fewer steps from the root are scored with every vector. Up to about 100 nodes a depth,
# one matrix product takes less time than to gather the one node of a depth that each word needs
# (measured with 100 and 300 columns on two cores).
_SHARED = 7
# The vectors of a group are padded to a multiple of this: loops of XLA and products over 26 numbers
# take longer than over 32.
_LANES = 16
# For a plan of memory: all groups of a block have the nodes of the longest, and XLA's functions
# have results of their own. Skip-gram with steps of 4,096, 16,384 and 65,536 tokens took 0.08, 0.27
# and 1.2 GB, and the plan has 0.07, 0.27 and 1.1 GB.
_LONGER = 1.5


class GroupedLoss:
    """The losses of groups of vectors and words, along the paths of the words."""

    def __init__(self, code: Code):
        self._code, self._shared = code, min(_SHARED, code.depth)
        self._upper_nodes = max(int(code.inner_E[: self._shared].sum()), 1)
        self._upper_weights = tf.function(self._weigh_upper, autograph=False, jit_compile=True)

    def part(self, predictions: Predictions, table: str) -> Part:
        """Return a part, not yet computed, whose loss is the weighted -log P of the words."""
        vectors = predictions.unique or _all_vectors(predictions)

        def block(*_: Any) -> tuple[tf.Tensor, _Labels]:
            """Return the rows of the nodes near the root, then of those on the paths."""
            paths = group_paths(self._code, _wanted_words(predictions), self._shared)
            rows_U = tf.concat([tf.range(self._upper_nodes), paths.rows_U], axis=0)
            return rows_U, _label(predictions, vectors, paths)

        words = predictions.targets_GM.shape[1]
        scored = math.ceil(_LONGER * words * self._code.count_below(self._shared))
        return Part(table, vectors.values_UD, block, self._differentiate, scored=scored)

    def _differentiate(self, labels: _Labels, hidden_ND: tf.Tensor, rows_UD: tf.Tensor) -> _Scored:
        """Return the loss of all vectors at all nodes, and its gradients, all float32."""
        count = self._upper_nodes
        narrow_UD = tf.cast(rows_UD, labels.dtype)
        hidden_VD = pad(tf.cast(hidden_ND, labels.dtype), 0, is_coarse=True)
        weights = self._upper_weights(*labels.upper, hidden_VD[:, 0])
        upper_KD = tf.slice(narrow_UD, (0, 0), (count, narrow_UD.shape[1]))  # of static shape
        scored = [_score_upper(upper_KD, hidden_VD, *weights)]
        for entries, _, padded_GN, weights_GMN in labels.blocks:
            rows_GKD = tf.gather(narrow_UD, entries.row_GK + count)
            hidden_GND = tf.gather(hidden_VD, padded_GN)
            scored.append(_score_lower(rows_GKD, hidden_GND, entries, weights_GMN))
        losses, by_hidden, by_rows = zip(*scored, strict=True)
        indices = [index_GN for _, index_GN, *_ in labels.blocks]
        by_hidden_VD = _sum_rows(by_hidden[0], hidden_VD[:, 0], *indices, *by_hidden[1:])
        rows = [entries.row_GK + count for entries, *_ in labels.blocks]
        mask_U = pad(narrow_UD[:, 0], 0, is_coarse=True)
        by_rows_UD = _sum_rows(by_rows[0], mask_U, *rows, *by_rows[1:])
        # TensorFlow removes the losses from a graph that does not use them.
        counts = tf.shape(hidden_ND)[0], tf.shape(rows_UD)[0]
        return tf.add_n(losses), by_hidden_VD[: counts[0]], by_rows_UD[: counts[1]]

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


# A loss, and its gradients by vectors and by rows.
_Scored = tuple[tf.Tensor, tf.Tensor, tf.Tensor]


class _Labels(NamedTuple):
    """The pairs of vectors and words, with the groups in the order of `GroupPaths.order_G`.

    Attributes:
        upper: For all groups the positions of the words (`GroupPaths.cut_GM`), the unique vector of
            each vector, (G, N) int32, and the weights of the pairs, (G, M, N) float32.
        dtype: The dtype of the products.
        blocks: For each block of groups its entries, the indices of the vectors without and with
            padding, and the weights with padding.
    """

    upper: tuple[tf.Tensor, tf.Tensor, tf.Tensor]
    dtype: tf.DType
    blocks: list[tuple[Entries, tf.Tensor, tf.Tensor, tf.Tensor]]


def _label(predictions: Predictions, vectors: Rows, paths: GroupPaths) -> _Labels:
    """Return the labels of predictions."""
    with tf.device(HOST):
        size = predictions.weights_GNM.shape[1]
        index_GN = tf.gather(tf.reshape(vectors.inverse_N, (-1, size)), paths.order_G)
        edges = [[0, 0], [0, -size % _LANES]]
        indices = paths.split(index_GN), paths.split(tf.pad(index_GN, edges))
    weights_GMN = tf.gather(tf.transpose(predictions.weights_GNM, (0, 2, 1)), paths.order_G)
    padded = paths.split(tf.pad(weights_GMN, [[0, 0], *edges]))
    blocks = list(zip(paths.blocks, *indices, padded, strict=False))  # none with no entries
    return _Labels((paths.cut_GM, index_GN, weights_GMN), predictions.hidden_GND.dtype, blocks)


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
    """
    scores_KV = tf.matmul(rows_KD, hidden_VD, transpose_b=True)
    error_KV = _upper_errors(scores_KV, visits_KV, lefts_KV)
    by_hidden_VD = tf.matmul(error_KV, rows_KD, transpose_a=True)
    loss = _upper_loss(scores_KV, visits_KV, lefts_KV)
    return loss, by_hidden_VD, tf.matmul(error_KV, hidden_VD)


def _score_lower(
    rows_GKD: tf.Tensor, hidden_GND: tf.Tensor, entries: Entries, weights_GMN: tf.Tensor
) -> _Scored:
    """Score the vectors of a block of groups with the nodes on the paths of their words.

    Scores are by node and vector, which suits the two products of the gradient. The result is as of
    `_score_upper`.
    """
    scores_GKN = tf.matmul(rows_GKD, hidden_GND, transpose_b=True)
    turns = weights_GMN, entries.word_GK, entries.left_GK
    error_GKN = _lower_errors(scores_GKN, *turns)
    by_hidden_GND = tf.matmul(error_GKN, rows_GKD, transpose_a=True)
    return _lower_loss(scores_GKN, *turns), by_hidden_GND, tf.matmul(error_GKN, hidden_GND)


# Not one function with `_weigh_upper`: XLA would compute the weights again for each score.
@tf.function(autograph=False, jit_compile=True)
def _upper_errors(scores_KV: tf.Tensor, visits_KV: tf.Tensor, lefts_KV: tf.Tensor) -> tf.Tensor:
    """Return the gradient by the scores of unique vectors with nodes, (K, V), of their dtype."""
    chance_KV = tf.sigmoid(_widen(scores_KV))
    return _narrow(visits_KV * chance_KV - lefts_KV, scores_KV.dtype)


@tf.function(autograph=False, jit_compile=True)  # one pass instead of seven
def _lower_errors(
    scores_GKN: tf.Tensor,
    weights_GMN: tf.Tensor,
    word_GK: tf.Tensor,
    left_GK: tf.Tensor,
) -> tf.Tensor:
    """Return the gradient by the scores of entries and vectors, (G, K, N), of their dtype."""
    weights_GKN = _lower_weights(weights_GMN, word_GK)
    chance_GKN = tf.sigmoid(_widen(scores_GKN))
    error_GKN = weights_GKN * (chance_GKN - tf.cast(left_GK, tf.float32)[:, :, tf.newaxis])
    return _narrow(error_GKN, scores_GKN.dtype)


@tf.function(autograph=False, jit_compile=True)  # one pass instead of eight
def _lower_loss(
    scores_GKN: tf.Tensor, weights_GMN: tf.Tensor, word_GK: tf.Tensor, left_GK: tf.Tensor
) -> tf.Tensor:
    """Return the sum of the losses at the nodes of entries, a float32 scalar."""
    scores, is_left_GK1 = _widen(scores_GKN), left_GK[:, :, tf.newaxis] > 0
    terms_GKN = tf.nn.softplus(tf.where(is_left_GK1, -scores, scores))
    return tf.reduce_sum(tf.reduce_sum(_lower_weights(weights_GMN, word_GK) * terms_GKN, axis=2))


@tf.function(autograph=False, jit_compile=True)
def _upper_loss(scores_KV: tf.Tensor, visits_KV: tf.Tensor, lefts_KV: tf.Tensor) -> tf.Tensor:
    """Return the sum of the losses at the nodes near the root, a float32 scalar."""
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
