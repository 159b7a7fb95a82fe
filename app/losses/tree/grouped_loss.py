"""The loss of hierarchical softmax for groups of vectors and words: one product for each group."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from ...system.gradients import custom_gradient
from ...types import HOST, Rows
from ..base import Part, Predictions
from . import group_errors
from .group_paths import GroupNodes, GroupPaths
from .group_scores import LowerScores, UpperScores
from .huffman import Code
from .paths import pad

# Nodes at fewer steps from the root are scored with every vector. Up to about 100 nodes a depth,
# one matrix product takes less time than to gather the one node of a depth that each word needs
# (measured with 100 and 300 columns on two cores).
_SHARED = 7


# The vectors of a group are padded to a multiple of this: loops of XLA and products over 26 numbers
# take longer than over 32.
_LANES = 16


class GroupedLoss:
    """The losses of groups of vectors and words, along the paths of the words.

    Args:
        code: The code of the vocabulary.
    """

    def __init__(self, code: Code):
        self._code, self._shared = code, min(_SHARED, code.depth)
        self._upper_nodes = max(int(code.inner_E[: self._shared].sum()), 1)
        self._upper_weights = tf.function(self._weigh_upper, autograph=False, jit_compile=True)

    def parts(self, predictions: Predictions, table: str, gathered: int) -> list[Part]:
        """Return one or two parts, not yet computed, whose losses sum to the weighted -log P.

        There are two if the rows of all depths are too many to be gathered at once: one of the
        nodes near the root, and one with a tile for every few depths below them.

        Args:
            predictions: The vectors, words and weights.
            table: The name of the table of nodes.
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

        upper_part = Part(
            table,
            vectors.values_UD,
            groups=1,
            members=None,
            tiles=None,
            block=upper_block,
            loss=loss,
        )
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
            upper = None
            if count:
                weights = self._upper_weights(*pairs.upper, hidden_VD[:, 0])
                upper = UpperScores.compute(narrow_UD[:count], hidden_VD, *weights)
            lower = [
                LowerScores.compute(narrow_UD, hidden_VD, entries, count, *of_block)
                for entries, of_block in zip(blocks, pairs.blocks, strict=False)
            ]

            def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                """Return the gradients by the vectors and by the rows, float32."""
                first_VD, first_KD = tf.zeros_like(hidden_VD), narrow_UD[:0]
                if upper is not None:
                    first_VD, first_KD = upper.gradients(upstream)
                by_block = [block.gradients(upstream) for block in lower]
                by_hidden_VD = group_errors.sum_rows(
                    first_VD,
                    hidden_VD[:, 0],
                    *(block.index_GN for block in lower),
                    *(by_hidden_GND for by_hidden_GND, _ in by_block),
                )
                by_rows_UD = group_errors.sum_rows(
                    first_KD,
                    pad(narrow_UD[:, 0], 0, is_coarse=True),
                    *(block.row_GK for block in lower),
                    *(by_rows_GKD for _, by_rows_GKD in by_block),
                )
                return by_hidden_VD[: tf.shape(hidden_ND)[0]], by_rows_UD[: tf.shape(rows_UD)[0]]

            # TensorFlow removes this from a graph that does not use the loss.
            losses = [block.loss() for block in lower]
            return tf.add_n(losses if upper is None else [upper.loss(), *losses]), gradient

        return total(hidden_ND, rows_UD)

    def _weigh_upper(
        self, cut_GM: tf.Tensor, index_GN: tf.Tensor, weights_GMN: tf.Tensor, mask_V: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the result of `group_errors.upper_weights` for as many vectors as `mask_V` has."""
        return group_errors.upper_weights(
            self._code, self._shared, cut_GM, index_GN, weights_GMN, tf.shape(mask_V)[0]
        )


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
