"""The loss of hierarchical softmax for groups of vectors and words: one product for each group."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from ...types import HOST
from ..base import Part, Predictions, UniqueVectors
from . import group_scores
from .group_paths import Entries, GroupNodes, GroupPaths
from .huffman import Code
from .paths import pad

# Nodes at fewer steps from the root are scored with every vector. Up to about 100 nodes a depth,
# one matrix product takes less time than to gather the one node of a depth that each word needs
# (measured with 100 and 300 columns on two cores).
_SHARED = 7


# The vectors of a group are padded to a multiple of this: a loop of XLA over 26 numbers takes longer
# than one over 32.
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
        words = targets_GM.shape.num_elements() or tf.size(targets_GM)
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
            table, vectors.values_UD, groups=1, members=None, tiles=None, block=upper_block,
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
        upper = self._upper_nodes if labels.has_upper else 0
        blocks = labels.nodes.blocks if labels.nodes is not None else []

        @tf.custom_gradient
        def total(hidden_ND: tf.Tensor, rows_UD: tf.Tensor):
            """Return the loss, with gradients by the vectors and by the rows."""
            narrow_UD = tf.cast(rows_UD, pairs.dtype)
            hidden_VD = pad(tf.cast(hidden_ND, pairs.dtype), 0, is_coarse=True)
            upper_KD = narrow_UD[:upper]
            scores_KV = tf.matmul(upper_KD, hidden_VD, transpose_b=True)
            if upper:
                weights = self._upper_weights(
                    pairs.cut_GM, pairs.index_GN, pairs.weights_GMN, hidden_VD[:, 0]
                )
            scored = [
                _Scored.score(narrow_UD, hidden_VD, entries, upper, *of_block)
                for entries, of_block in zip(blocks, pairs.blocks, strict=False)
            ]

            def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                """Return the gradients by the vectors and by the rows, float32."""
                upper_hidden_VD, upper_rows_KD = tf.zeros_like(hidden_VD), upper_KD
                if upper:
                    error_KV = group_scores.upper_errors(scores_KV, *weights, upstream)
                    upper_rows_KD = tf.matmul(error_KV, hidden_VD)
                    upper_hidden_VD = tf.matmul(error_KV, upper_KD, transpose_a=True)
                by_blocks = [block.gradients(upstream) for block in scored]
                by_hidden_VD = group_scores.sum_rows(
                    upper_hidden_VD,
                    hidden_VD[:, 0],
                    [block.index_GN for block in scored],
                    [by_hidden_GND for by_hidden_GND, _ in by_blocks],
                )
                if not scored:
                    by_rows_UD = tf.cast(upper_rows_KD, tf.float32)
                else:
                    by_rows_UD = group_scores.sum_rows(
                        upper_rows_KD,
                        pad(narrow_UD[:, 0], 0, is_coarse=True),
                        [block.row_GK for block in scored],
                        [by_rows_GKD for _, by_rows_GKD in by_blocks],
                    )
                return by_hidden_VD[: tf.shape(hidden_ND)[0]], by_rows_UD[: tf.shape(rows_UD)[0]]

            # TensorFlow removes this from a graph that does not use the loss.
            losses = [block.loss() for block in scored]
            if upper:
                losses.append(group_scores.upper_loss(scores_KV, *weights))
            return tf.add_n(losses), gradient

        return total(hidden_ND, rows_UD)

    def _weigh_upper(
        self, cut_GM: tf.Tensor, index_GN: tf.Tensor, weights_GMN: tf.Tensor, mask_V: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the result of `group_scores.upper_weights` for as many vectors as `mask_V` has."""
        return group_scores.upper_weights(
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
        index_GN: The unique vector of each vector, int32.
        cut_GM: The field of `GroupPaths`.
        weights_GMN: The weight of each pair, float32.
        dtype: The dtype of the products.
        blocks: For each block of groups (see `GroupNodes`), the indices of the vectors without and
            with padding, and the weights with padding.
    """

    index_GN: tf.Tensor
    cut_GM: tf.Tensor
    weights_GMN: tf.Tensor
    dtype: tf.DType
    blocks: list[tuple[tuple[tf.Tensor, tf.Tensor], tf.Tensor]]

    @classmethod
    def sort(
        cls, predictions: Predictions, vectors: UniqueVectors, paths: GroupPaths
    ) -> _Pairs:
        """Return the pairs of some predictions."""
        with tf.device(HOST):
            index_GN = tf.gather(vectors.index_GN, paths.order_G)
            edges = [[0, 0], [0, -predictions.weights_GNM.shape[1] % _LANES]]
            indices = zip(
                paths.split(index_GN), paths.split(tf.pad(index_GN, edges)), strict=True
            )
        weights_GMN = tf.transpose(predictions.weights_GNM, (0, 2, 1))
        weights_GMN = tf.gather(weights_GMN, paths.order_G)
        padded_GMN = tf.pad(weights_GMN, [[0, 0], *edges])
        blocks = list(zip(indices, paths.split(padded_GMN), strict=True))
        return cls(index_GN, paths.cut_GM, weights_GMN, predictions.hidden_GND.dtype, blocks)


class _Scored(NamedTuple):
    """A block of groups whose vectors are scored with the nodes on the paths of their words.

    Attributes:
        row_GK: The row of each entry, int32.
        index_GN: The unique vector of each vector, int32.
        rows_GKD: The rows of the entries.
        hidden_GND: The vectors.
        scores_GKN: Their products. Scores are by node and vector, not by vector and node: this
            order suits the two products of the gradient.
        entries: The entries.
        weights_GMN: The weight of each pair, float32.
    """

    row_GK: tf.Tensor
    index_GN: tf.Tensor
    rows_GKD: tf.Tensor
    hidden_GND: tf.Tensor
    scores_GKN: tf.Tensor
    entries: Entries
    weights_GMN: tf.Tensor

    @classmethod
    def score(
        cls,
        rows_UD: tf.Tensor,
        hidden_VD: tf.Tensor,
        entries: Entries,
        upper: int,
        indices: tuple[tf.Tensor, tf.Tensor],
        weights_GMN: tf.Tensor,
    ) -> _Scored:
        """Gather the rows and vectors of a block, and multiply them.

        Args:
            rows_UD: The rows, in the dtype of the product.
            hidden_VD: The unique vectors, in the same dtype.
            entries: The nodes on the paths.
            upper: The number of rows before those of `entries`.
            indices: The unique vector of each vector, without and with padding.
            weights_GMN: The weight of each pair, with padding.
        """
        row_GK = entries.row_GK + upper
        rows_GKD, hidden_GND = tf.gather(rows_UD, row_GK), tf.gather(hidden_VD, indices[1])
        scores_GKN = tf.matmul(rows_GKD, hidden_GND, transpose_b=True)
        return cls(row_GK, indices[0], rows_GKD, hidden_GND, scores_GKN, entries, weights_GMN)

    def gradients(self, upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the gradients by the vectors, (G, N, D), and by the rows, (G, K, D)."""
        error_GKN = group_scores.lower_errors(
            self.scores_GKN,
            self.weights_GMN,
            self.entries.word_GK,
            self.entries.left_GK,
            upstream,
        )
        return (
            tf.matmul(error_GKN, self.rows_GKD, transpose_a=True),
            tf.matmul(error_GKN, self.hidden_GND),
        )

    def loss(self) -> tf.Tensor:
        """Return the sum of the losses, a float32 scalar."""
        return group_scores.lower_loss(
            self.scores_GKN, self.weights_GMN, self.entries.word_GK, self.entries.left_GK
        )


def _all_vectors(predictions: Predictions) -> UniqueVectors:
    """Return all hidden vectors as unique vectors."""
    hidden_GND = predictions.hidden_GND
    hidden_ND = tf.reshape(hidden_GND, (-1, hidden_GND.shape[2]))
    shape = tf.shape(predictions.weights_GNM)[:2]
    with tf.device(HOST):
        return UniqueVectors(hidden_ND, tf.reshape(tf.range(tf.reduce_prod(shape)), shape))


def _wanted_words(predictions: Predictions) -> tf.Tensor:
    """Return the words of each group, (G, M), with word 0 for a word that none is to predict.

    Word 0 has the shortest path.
    """
    with tf.device(HOST):  # with the ids
        is_target_GM = tf.reduce_any(predictions.weights_GNM != 0, axis=1)
        return tf.where(is_target_GM, predictions.targets_GM, 0)
