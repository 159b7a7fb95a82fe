"""The hierarchical softmax over a Huffman tree."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from ...system.xla import under_xla
from ...tables.base import TableSpec
from ...tables.initial import Constant
from ...tables.row_reads import take
from ...types import Rows
from ..base import Gather, NormalizedLoss, Part, Predictions, WordBlock, WordSegments
from . import single_loss
from .grouped_loss import GroupedLoss
from .paths import Code, canonical_code, padded_paths

_TABLE = "output"
# A segment of words is a subtree of at most this many depths, which has at most 32,768 words.
_DEPTHS = 15

# Reads rows of the table: takes row numbers (U,) int32, returns rows (U, D).
Read = Callable[[tf.Tensor], tf.Tensor]


class HierarchicalSoftmax(NormalizedLoss):
    """The loss of a word as the sum of logistic losses along its path through a binary tree.

    A path goes left at node n with a probability of sigmoid(h v_n) (Mikolov et al. 2013b, section
    2.1, after Morin and Bengio 2005). The tree is Huffman's, as in word2vec.c: a word of
    probability p costs about -log2 p rows, which is 11 on average in English text, and 15 for ten
    million words. It is in the canonical form, which takes no memory (see
    `losses.tree.paths.Code`).

    Args:
        counts: (V,) occurrences of the words, descending.
    """

    is_likelihood = True
    group_words = 16

    def __init__(self, counts: np.ndarray, columns: int):
        self._code = canonical_code(counts)
        self._columns = columns
        self._grouped = GroupedLoss(self._code)

    def tables(self) -> dict[str, TableSpec]:
        """Return the spec of a table with a row for each inner node, 0 at first (word2vec.c)."""
        rows = max(int(self._code.inner_E.sum()), 1)  # a table needs a row, even for a single word
        spec = TableSpec(rows, self._columns, Constant(0.0), by_frequency=True)  # the root first
        return {_TABLE: spec}

    def lookups(self, targets_GM: tf.Tensor, vectors: int, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the nodes of all paths under XLA, which needs static shapes; otherwise none.

        Near the root they are all nodes, which are fewer there than the words.
        """
        if not under_xla():
            return {}
        depths, upper = self._upper(targets_GM)
        lower = padded_paths(self._code, targets_GM)[0][:, :, depths:]
        return {_TABLE: tf.concat([tf.range(upper), tf.reshape(lower, [-1])], axis=0)}

    def _upper(self, targets_GM: tf.Tensor) -> tuple[int, int]:
        """Return at how many depths there are at most as many nodes as words, and these nodes."""
        words = targets_GM.shape.num_elements() or 1
        inner_C = self._code.inner_E[: max(self._code.depth, 1)]
        are_more_C = (inner_C > words) | (inner_C == 0)  # none: the path of a single word
        depths = int(np.argmax(np.append(are_more_C, True)))
        return depths, int(inner_C[:depths].sum())

    def loss(
        self, predictions: Predictions, rows: dict[str, Rows]
    ) -> tuple[tf.Tensor | float, list[Part]]:
        """Return 0, and a part with the whole loss, not yet computed; under XLA the whole loss.

        Where each vector predicts one word, a loop over the paths takes a tenth of the time of
        products for groups; where groups of vectors predict groups of words, 1.5 times theirs
        (data/benchmarks/README.md).
        """
        if under_xla():
            return tf.reduce_sum(self.vector_losses(predictions, rows)), []
        if predictions.hidden_GND.shape[1] == predictions.targets_GM.shape[1] == 1:
            part = single_loss.make_part(self._code, predictions, _TABLE)
        else:
            part = self._grouped.part(predictions, _TABLE)
        read = self._code.count_read(predictions.targets_GM.shape.num_elements())
        return 0.0, [part._replace(rows=read)]

    def vector_losses(self, predictions: Predictions, rows: dict[str, Rows]) -> tf.Tensor:
        """Return the weighted loss of each vector under XLA, (G N,) float32, to differentiate.

        Args:
            rows: The rows of `lookups`, by name of the table.
        """
        hidden_GND, of_table = predictions.hidden_GND, rows[_TABLE]
        depths, upper = self._upper(predictions.targets_GM)
        nodes_GMC, turns_GMC = padded_paths(self._code, predictions.targets_GM)
        # The nodes near the root are looked up by number.
        upper_GMC = tf.gather(of_table.inverse_N, tf.minimum(nodes_GMC[:, :, :depths], upper - 1))
        lower_GMC = tf.reshape(of_table.inverse_N[upper:], tf.shape(nodes_GMC[:, :, depths:]))
        inverse_GMC = tf.concat([upper_GMC, lower_GMC], axis=2)
        of_table = of_table._replace(inverse_N=tf.reshape(inverse_GMC, [-1]))
        (vectors, columns), (words, depths) = hidden_GND.shape[1:], turns_GMC.shape[1:]
        rows_GKD = tf.reshape(take(of_table, hidden_GND.dtype), (-1, words * depths, columns))
        # One product scores all vectors of a group with all nodes of its words.
        scores_GNK = tf.cast(tf.matmul(hidden_GND, rows_GKD, transpose_b=True), tf.float32)
        scores_GNMC = tf.reshape(scores_GNK, (-1, vectors, words, depths))
        turns_G1MC = turns_GMC[:, tf.newaxis]
        terms_GNMC = tf.abs(turns_G1MC) * tf.nn.softplus(-turns_G1MC * scores_GNMC)
        losses_GNM = predictions.weights_GNM * tf.reduce_sum(terms_GNMC, axis=3)
        return tf.reshape(tf.reduce_sum(losses_GNM, axis=2), [-1])

    def exact(self, predictions: Predictions, gather: Gather) -> list[Part]:
        """Return the part of `loss`, which gives a loss for each vector; not under XLA."""
        return self.loss(predictions, {})[1]

    def priors(self, counts_V: np.ndarray) -> dict[str, np.ndarray]:
        """Return no scores: at each node of Huffman's tree both turns are about as frequent."""
        return {}

    def word_segments(self, hidden_ND: tf.Tensor, gather: Gather) -> list[WordSegments]:
        """Return the words near the root, then the words of each subtree; see `NormalizedLoss`.

        Rows of inner nodes near the root are read at once, the rows of a subtree only when its
        log-probabilities are asked for. There is no first segment if no word is near the root. The
        bound of a subtree is the log-probability of its root.
        """
        code, hidden_ND = self._code, tf.cast(hidden_ND, tf.float32)
        read = functools.partial(gather, _TABLE)
        depth = max(code.depth - _DEPTHS, 0)
        above_NI = tf.zeros_like(hidden_ND[:, :1])
        ended = [above_NI[:, : int(code.words_E[0])]]
        for level in range(depth):
            first = int(code.rows_E[level])
            rows_ID = read(tf.range(first, first + int(code.inner_E[level])))
            scores_NI = tf.matmul(hidden_ND, rows_ID, transpose_b=True)
            above_NI, ended_NM = _split_children(code, level, 0, above_NI, scores_NI)
            ended.append(ended_NM[:, ::-1])  # of one depth the higher index is the lower id
        found = []
        if code.ends_E[depth]:
            words = tf.range(int(code.ends_E[depth])), tf.concat(ended, axis=1)
            bounds_N1 = tf.reduce_max(words[1], axis=1, keepdims=True)
            found.append(WordSegments.whole(bounds_N1, lambda _: words))
        if roots := int(code.inner_E[depth]):
            above_NI = above_NI[:, :roots]

            def subtree(root: Any) -> WordBlock:
                above_N1 = tf.gather(above_NI, [root], axis=1)
                return _subtree(code, depth, tf.convert_to_tensor(root), above_N1, hidden_ND, read)

            found.append(WordSegments.whole(above_NI, subtree))
        return found


def _subtree(
    code: Code,
    depth: int,
    root: tf.Tensor,
    above_N1: tf.Tensor,
    hidden_ND: tf.Tensor,
    read: Read,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the ids of a subtree's words, (M,) int32 ascending, and their log-probabilities.

    This reads the rows of all nodes of the subtree.
    """
    spans = []  # at each depth the first node, the first word, and the end
    begin, end = root, root + 1
    for level in range(depth, code.depth + 1):
        middle = tf.clip_by_value(int(code.inner_E[level]), begin, end)
        spans.append((begin, middle, end))
        begin, end = 2 * begin, 2 * middle
    # No node of the last depth has children.
    rows = [
        int(code.rows_E[depth + step]) + tf.range(begin, middle)
        for step, (begin, middle, _) in enumerate(spans[:-1])
    ]
    scores_NU = tf.matmul(hidden_ND, read(tf.concat(rows, axis=0)), transpose_b=True)
    sizes = tf.stack([tf.size(depth_rows) for depth_rows in rows])
    scores = tf.split(scores_NU, sizes, axis=1, num=len(rows))
    above_NI, ids, words = above_N1, [], []
    for step, scores_NI in enumerate(scores):
        level, (_, first, end) = depth + step + 1, spans[step + 1]
        above_NI, ended_NM = _split_children(code, level - 1, spans[step][0], above_NI, scores_NI)
        # The higher index is the lower id.
        ids.append(int(code.last_E[level]) + 1 - end + tf.range(end - first))
        words.append(ended_NM[:, ::-1])
    return tf.concat(ids, axis=0), tf.concat(words, axis=1)


def _split_children(
    code: Code, depth: int, begin: Any, above_NI: tf.Tensor, scores_NI: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the log-probabilities of the children of nodes: of inner nodes, then of words.

    The nodes are I neighbors at one depth. Their 2 I children are columns by ascending index; inner
    nodes come before words.
    """
    left_NI = tf.math.log_sigmoid(scores_NI)  # the right child has log sigmoid(-score)
    below_NI2 = above_NI[..., tf.newaxis] + tf.stack([left_NI, left_NI - scores_NI], axis=-1)
    count, nodes = tf.unstack(tf.shape(scores_NI))
    below_NJ = tf.reshape(below_NI2, tf.stack([count, 2 * nodes]))
    middle = tf.clip_by_value(int(code.inner_E[depth + 1]) - 2 * begin, 0, 2 * nodes)
    return below_NJ[:, :middle], below_NJ[:, middle:]
