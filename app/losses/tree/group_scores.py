"""The scores of groups of vectors with the nodes on paths, and their losses and gradients."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from . import group_errors
from .group_paths import Entries


class UpperScores(NamedTuple):
    """The scores of the unique vectors with the nodes near the root.

    Attributes:
        rows_KD: The rows of the nodes.
        hidden_VD: The vectors.
        scores_KV: Their products.
        visits_KV: The weights with which vectors visit nodes, float32.
        lefts_KV: The weights with which vectors go left, float32.
    """

    rows_KD: tf.Tensor
    hidden_VD: tf.Tensor
    scores_KV: tf.Tensor
    visits_KV: tf.Tensor
    lefts_KV: tf.Tensor

    @classmethod
    def compute(
        cls, rows_KD: tf.Tensor, hidden_VD: tf.Tensor, visits_KV: tf.Tensor, lefts_KV: tf.Tensor
    ) -> UpperScores:
        """Multiply the rows and the vectors; for the arguments see the attributes."""
        scores_KV = tf.matmul(rows_KD, hidden_VD, transpose_b=True)
        return cls(rows_KD, hidden_VD, scores_KV, visits_KV, lefts_KV)

    def gradients(self, upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the gradients by the vectors, (V, D), and by the rows, (K, D)."""
        error_KV = group_errors.upper_errors(
            self.scores_KV, self.visits_KV, self.lefts_KV, upstream
        )
        by_hidden_VD = tf.matmul(error_KV, self.rows_KD, transpose_a=True)
        return by_hidden_VD, tf.matmul(error_KV, self.hidden_VD)

    def loss(self) -> tf.Tensor:
        """Return the sum of the losses, a float32 scalar."""
        return group_errors.upper_loss(self.scores_KV, self.visits_KV, self.lefts_KV)


class LowerScores(NamedTuple):
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
    def compute(
        cls,
        rows_UD: tf.Tensor,
        hidden_VD: tf.Tensor,
        entries: Entries,
        upper: int,
        indices: tuple[tf.Tensor, tf.Tensor],
        weights_GMN: tf.Tensor,
    ) -> LowerScores:
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
        error_GKN = group_errors.lower_errors(
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
        return group_errors.lower_loss(
            self.scores_GKN, self.weights_GMN, self.entries.word_GK, self.entries.left_GK
        )
