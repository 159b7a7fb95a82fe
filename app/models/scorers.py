"""Scorers of a user and an item: the score is the inner product of their codes.

A scorer turns the row of each user and of each item into a code of E numbers, each by itself. So
the work on a row is done once, however many pairs it is in.
"""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class MatrixFactorization:
    """The score u v + b_u + b_v (Koren, Bell & Volinsky 2009, equation 4).

    The paper's mean rating is added by the model. A bias is the last number of its row. The codes
    (u, b_u, 1) and (v, 1, b_v) make the biases a part of the inner product.

    Attributes:
        dim: The length D of u and of v.
    """

    dim: int

    @property
    def columns(self) -> tuple[int, int]:
        """The columns of a user's row and of an item's row: D + 1 each, with the bias."""
        return self.dim + 1, self.dim + 1

    def encode_users(self, rows_ND: tf.Tensor) -> tf.Tensor:
        """Return the codes (u, b_u, 1) of users, (N, E) float32."""
        return _append_column(rows_ND, 1.0)

    def encode_items(self, rows_ND: tf.Tensor) -> tf.Tensor:
        """Return the codes (v, 1, b_v) of items, (N, E) float32."""
        vectors_ND, biases_N1 = _split_bias(rows_ND)
        return tf.concat([vectors_ND, tf.ones_like(biases_N1), biases_N1], axis=1)


@dataclasses.dataclass(frozen=True)
class ItemBiased:
    """The score u v + t b_v or cos(u, v) + t b_v, for a softmax over items.

    With a bias, the vector of an item need not say how popular the item is. There is no bias of
    users, since it would be the same in all scores of a softmax. The bias is the last number of an
    item's row. Codes are (u, t) and (v, b_v), with u and v of length 1 for cosines.

    Attributes:
        dim: The length D of u and of v.
        cosine: Whether u and v are scaled to length 1.
        unit: t, which is the temperature by which the softmax divides scores.
    """

    dim: int
    cosine: bool
    unit: float

    @property
    def columns(self) -> tuple[int, int]:
        """The columns of a user's row, D, and of an item's row, D + 1 with the bias."""
        return self.dim, self.dim + 1

    def encode_users(self, rows_ND: tf.Tensor) -> tf.Tensor:
        """Return the codes (u, t) of users, (N, E) float32."""
        return _append_column(self._vectors(rows_ND), self.unit)

    def encode_items(self, rows_ND: tf.Tensor) -> tf.Tensor:
        """Return the codes (v, b_v) of items, (N, E) float32."""
        vectors_ND, biases_N1 = _split_bias(rows_ND)
        return tf.concat([self._vectors(vectors_ND), biases_N1], axis=1)

    def _vectors(self, rows_ND: tf.Tensor) -> tf.Tensor:
        """Return the rows, scaled to length 1 if `cosine` is set."""
        return tf.math.l2_normalize(rows_ND, axis=1) if self.cosine else rows_ND


Scorer: TypeAlias = MatrixFactorization | ItemBiased


def _split_bias(rows_ND: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return all columns but the last, and the last one, (N, 1)."""
    # Not two slices, whose gradients are padded to all columns and added: four more passes.
    vectors_ND, biases_N1 = tf.split(rows_ND, [-1, 1], axis=1)
    return vectors_ND, biases_N1


def _append_column(rows_ND: tf.Tensor, value: float) -> tf.Tensor:
    """Return the rows with one more column, which is `value` in all of them."""
    # tf.pad reads the value from host memory, so with a GPU the constant would be copied each step.
    return tf.concat([rows_ND, tf.fill([tf.shape(rows_ND)[0], 1], value)], axis=1)
