"""Hierarchical softmax over a Huffman tree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ...tables.base import TableSpec
from ...types import HOST, Rows
from ..base import Gather, Part, Predictions, WordBlock
from . import huffman, subtrees
from .paths import Paths, Slots

_TABLE = "output"
# Nodes at fewer steps from the root are scored with every vector: one product of matrices takes
# less time than to gather for every word the one node of a depth that it needs, up to about 100
# nodes a depth (100 and 300 columns, two cores).
_SHARED = 7
# So many vectors that have a word each are scored with all of their words' nodes: a product of
# matrices takes less time than the few scores that are needed, one by one.
_TOGETHER = 32
# Numbers that are gathered at once at most, 256 MB; some depths at a time where it would be more.
_GATHERED = 64 << 20


class HierarchicalSoftmax:
    """A word is the turns of its path through a binary tree, each of them a logistic decision.

    From node n to the left with a probability of sigmoid(h v_n) (Mikolov et al. 2013b, section 2.1,
    after Morin and Bengio 2005). The tree is Huffman's, as in word2vec.c: a word of probability p
    costs about -log2 p rows, 11 on average in English text and 15 among ten million words. It is in
    the canonical form, which takes no memory (see `losses.tree.huffman.Code`).

    counts: (V,) occurrences, descending. columns: D.
    """

    def __init__(self, counts: np.ndarray, columns: int):
        self._code = huffman.canonical_code(counts)
        self._columns = columns
        self._shared = min(_SHARED, self._code.depth)
        turns = subtrees.path_turns(self._code, self._shared)
        self._first = turns.shape[1] // 2
        # A variable, as a graph would hold a constant once for each of its steps.
        self._turns = tf.Variable(turns, trainable=False)

    def tables(self) -> dict[str, TableSpec]:
        """A row for each node with children, the root first; 0 at first, as in word2vec.c."""
        rows = max(int(self._code.inner_E.sum()), 1)  # a single word needs none, a table does
        return {_TABLE: TableSpec(rows, self._columns, tf.zeros)}

    def lookups(self, targets_GM: tf.Tensor, vectors: int, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Nothing: all rows are streamed."""
        return {}

    def loss(self, predictions: Predictions, rows: dict[str, Rows]) -> tuple[float, list[Part]]:
        """One block of rows, or some depths of the tree at a time where it would be too large."""
        return 0.0, self.exact(predictions, rows)

    def exact_lookups(self) -> dict[str, tf.Tensor]:
        """Nothing: all rows are streamed."""
        return {}

    def exact(self, predictions: Predictions, rows: dict[str, Rows]) -> list[Part]:
        """The parts of `loss`, which have a loss for each vector."""
        hidden_ND = tf.reshape(predictions.hidden_GND, (-1, self._columns))
        targets_GM, weights_GNM = _grouped(predictions)
        paths = Paths(self._code, targets_GM)
        depths = self._code.depth - self._shared
        words = targets_GM.shape.num_elements() or tf.size(targets_GM)
        at_once = _GATHERED // (words * self._columns)

        def first(group: tf.Tensor, tile: tf.Tensor) -> tuple[tf.Tensor, _Known]:
            turns_GMK = tf.cast(self._turns, hidden_ND.dtype)
            turns_GMK = tf.gather(turns_GMK, paths.cut(self._shared))
            turns_GNK = tf.matmul(tf.cast(weights_GNM, hidden_ND.dtype), turns_GMK)
            return tf.range(self._first), _Known(turns_GNK, None)

        def further(group: tf.Tensor, tile: tf.Tensor) -> tuple[tf.Tensor, _Known]:
            slots = paths.slots(self._shared + tile * at_once, at_once)
            return slots.rows_U, _Known(None, slots)

        def both(group: tf.Tensor, tile: tf.Tensor) -> tuple[tf.Tensor, _Known]:
            first_K, (turns_GNK, _) = first(group, tile)
            further_U, (_, slots) = further(group, tile)
            return tf.concat([first_K, further_U], axis=0), _Known(turns_GNK, slots)

        def loss(known: _Known, hidden_ND: tf.Tensor, rows_UD: tf.Tensor, measured_N: None):
            losses_GN = _losses(hidden_ND, weights_GNM, known, rows_UD)
            return tf.reshape(losses_GN, [-1])[: tf.shape(hidden_ND)[0]]

        part = Part(_TABLE, hidden_ND, groups=1, members=None, tiles=None, block=first, loss=loss)
        if not depths:
            return [part]
        if isinstance(at_once, int) and at_once >= depths:
            return [part._replace(block=both)]
        at_once = tf.clip_by_value(at_once, 1, depths)
        tiles = -(-depths // at_once)
        return [part, part._replace(block=further, tiles=lambda group: tiles)]

    def priors(self, counts_V: np.ndarray) -> dict[str, np.ndarray]:
        """None: Huffman's tree goes either way about equally often at each of its nodes."""
        return {}

    def word_blocks(self, hidden_ND: tf.Tensor, gather: Gather) -> Iterator[WordBlock]:
        """The words of each of some subtrees, as probable as its root at most."""
        hidden_ND = tf.cast(hidden_ND, tf.float32).numpy()
        return subtrees.word_blocks(self._code, hidden_ND, lambda rows_U: gather(_TABLE, rows_U))


class _Known(NamedTuple):
    """What is known of a block of rows: of the nodes near the root, and of those further away.

    turns_GNK: the weights with which each vector goes left at the first nodes, and then those with
    which it goes right, in the dtype of the products.
    """

    turns_GNK: tf.Tensor | None
    slots: Slots | None


def _grouped(predictions: Predictions) -> tuple[tf.Tensor, tf.Tensor]:
    """The words of each group, and the weights; single ones in groups, each with its own vector.

    What nobody is to predict is made word 0, which has the shortest path.
    """
    hidden_GND, targets_GM, weights_GNM = predictions
    with tf.device(HOST):  # with the ids
        if hidden_GND.shape[1] == targets_GM.shape[1] == 1:
            targets_GM = _in_groups(targets_GM, _TOGETHER)[:, :, 0]
            weights_GM = _in_groups(weights_GNM[:, 0], _TOGETHER)[:, :, 0]
            is_wanted_GM = weights_GM != 0
        else:
            weights_GM, is_wanted_GM = None, tf.reduce_any(weights_GNM != 0, axis=1)
        targets_GM = tf.where(is_wanted_GM, targets_GM, 0)
    if weights_GM is not None:  # each word of a group is its own vector's
        weights_GNM = weights_GM[:, tf.newaxis] * tf.eye(_TOGETHER)
    return targets_GM, weights_GNM


def _in_groups(values_ND: tf.Tensor, size: int) -> tf.Tensor:
    """The values `size` at a time, (G, N, D), filled up with zeros; without values one group."""
    count = values_ND.shape[0] or tf.shape(values_ND)[0]
    groups = -(-(values_ND.shape[0] or tf.maximum(count, 1)) // size)
    filled_ND = tf.pad(values_ND, [[0, groups * size - count], [0, 0]])
    return tf.reshape(filled_ND, (-1, size, values_ND.shape[1]))


def _losses(
    hidden_ND: tf.Tensor, weights_GNM: tf.Tensor, known: _Known, rows_UD: tf.Tensor
) -> tf.Tensor:
    """The loss of each vector at the nodes of a block, (G, N) float32."""
    hidden_GND = _in_groups(hidden_ND, weights_GNM.shape[1])
    turns_GNK, slots = known
    if slots is None:
        return _first_losses(hidden_GND, tf.cast(rows_UD, hidden_GND.dtype), turns_GNK)
    first = 0 if turns_GNK is None else turns_GNK.shape[2] // 2
    first_KD, slots_GKD = _taken(rows_UD, first, slots, hidden_GND.dtype)
    losses_GN = _slot_losses(hidden_GND, slots_GKD, slots, weights_GNM)
    if turns_GNK is not None:
        losses_GN += _first_losses(hidden_GND, first_KD, turns_GNK)
    return losses_GN


def _taken(
    rows_UD: tf.Tensor, first: int, slots: Slots, dtype: tf.DType
) -> tuple[tf.Tensor, tf.Tensor]:
    """The first rows, and that of each slot out of the others, (G, K, D), as `dtype`.

    The gradients of a row's slots are summed in float32.
    """

    @tf.custom_gradient
    def taken(rows_UD: tf.Tensor):
        def gradient(by_first_KD: tf.Tensor, by_slots_GKD: tf.Tensor) -> tf.Tensor:
            by_slots_ND = tf.reshape(by_slots_GKD, (-1, rows_UD.shape[1]))
            by_slots_SD = tf.cast(tf.gather(by_slots_ND, slots.place_S), tf.float32)
            by_rows_UD = tf.math.segment_sum(by_slots_SD, slots.row_S)
            return tf.concat([tf.cast(by_first_KD, tf.float32), by_rows_UD], axis=0)

        values_UD = tf.cast(rows_UD, dtype)
        return (values_UD[:first], tf.gather(values_UD, first + slots.row_GK)), gradient

    return taken(rows_UD)


def _first_losses(hidden_GND: tf.Tensor, rows_KD: tf.Tensor, turns_GNK: tf.Tensor) -> tf.Tensor:
    """The loss of each vector at nodes that are scored with all, (G, N) float32."""
    hidden_ND = tf.reshape(hidden_GND, (-1, hidden_GND.shape[2]))
    scores_NK = tf.matmul(hidden_ND, rows_KD, transpose_b=True)
    scores_GNK = tf.reshape(scores_NK, (-1, hidden_GND.shape[1], turns_GNK.shape[2] // 2))

    @tf.custom_gradient
    def losses(scores_GNK: tf.Tensor):
        def gradient(upstream_GN: tf.Tensor) -> tf.Tensor:
            return _first_gradient(scores_GNK, turns_GNK, upstream_GN)

        left_GNK, right_GNK = tf.split(tf.cast(turns_GNK, tf.float32), 2, axis=2)
        scores = tf.cast(scores_GNK, tf.float32)
        terms_GNK = left_GNK * tf.nn.softplus(-scores) + right_GNK * tf.nn.softplus(scores)
        return tf.reduce_sum(terms_GNK, axis=2), gradient

    return losses(scores_GNK)


@tf.function(jit_compile=True, autograph=False)  # one pass instead of five
def _first_gradient(
    scores_GNK: tf.Tensor, turns_GNK: tf.Tensor, upstream_GN: tf.Tensor
) -> tf.Tensor:
    left_GNK, right_GNK = tf.split(tf.cast(turns_GNK, tf.float32), 2, axis=2)
    chance_GNK = tf.sigmoid(tf.cast(scores_GNK, tf.float32))
    error_GNK = (left_GNK + right_GNK) * chance_GNK - left_GNK
    return tf.cast(upstream_GN[:, :, tf.newaxis] * error_GNK, scores_GNK.dtype)


def _slot_losses(
    hidden_GND: tf.Tensor, rows_GKD: tf.Tensor, slots: Slots, weights_GNM: tf.Tensor
) -> tf.Tensor:
    """The loss of each vector at the nodes of its group's slots, (G, N) float32."""

    @tf.custom_gradient
    def losses(scores_GKN: tf.Tensor):
        def gradient(upstream_GN: tf.Tensor) -> tf.Tensor:
            return _slot_gradient(
                scores_GKN, weights_GNM, slots.word_GK, slots.left_GK, slots.real_GK, upstream_GN
            )

        scores = tf.cast(scores_GKN, tf.float32)
        weights_GKN = _slot_weights(weights_GNM, slots.word_GK, slots.real_GK)
        left_GK1 = slots.left_GK[:, :, tf.newaxis] > 0
        terms_GKN = weights_GKN * tf.nn.softplus(tf.where(left_GK1, -scores, scores))
        return tf.reduce_sum(terms_GKN, axis=1), gradient

    # By slot, and not by vector: what comes of it lies as the two products of its gradient want it.
    return losses(tf.matmul(rows_GKD, hidden_GND, transpose_b=True))


@tf.function(jit_compile=True, autograph=False)  # one pass instead of seven
def _slot_gradient(
    scores_GKN: tf.Tensor,
    weights_GNM: tf.Tensor,
    word_GK: tf.Tensor,
    left_GK: tf.Tensor,
    real_GK: tf.Tensor,
    upstream_GN: tf.Tensor,
) -> tf.Tensor:
    weights_GKN = _slot_weights(weights_GNM, word_GK, real_GK) * upstream_GN[:, tf.newaxis]
    chance_GKN = tf.sigmoid(tf.cast(scores_GKN, tf.float32))
    error_GKN = weights_GKN * (chance_GKN - tf.cast(left_GK, tf.float32)[:, :, tf.newaxis])
    return tf.cast(error_GKN, scores_GKN.dtype)


def _slot_weights(weights_GNM: tf.Tensor, word_GK: tf.Tensor, real_GK: tf.Tensor) -> tf.Tensor:
    weights_GMN = tf.transpose(weights_GNM, (0, 2, 1))
    weights_GKN = tf.gather(weights_GMN, word_GK, batch_dims=1)
    return weights_GKN * tf.cast(real_GK, tf.float32)[:, :, tf.newaxis]
