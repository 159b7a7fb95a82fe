"""Matrix factorisation: a score is the inner product of a user's vector and an item's."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import ClassVar, Protocol

import tensorflow as tf

from ..tables.base import TableSpec

Kernels = Mapping[str, tf.Tensor]


class Scorer(Protocol):
    """How the row of a user and the row of an item give a score.

    All that can be is done with either of them alone: a code of E numbers, once for each user and
    each item. columns: of the rows of users, and of those of items. inner: whether a score is the
    inner product of two codes. biased: whether the last number of an item's row is its bias.
    """

    columns: tuple[int, int]
    inner: bool
    biased: bool

    def kernels(self, seed: int) -> dict[str, TableSpec]:
        """Further tables by name, small ones that are read whole."""
        ...

    def users(self, rows_ND: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """The codes of users, (N, E) float32. kernels: the rows of those tables."""
        ...

    def items(self, rows_ND: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """The codes of items, (N, E) float32."""
        ...

    def pairs(self, users_NE: tf.Tensor, items_NE: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """The score of each user and its item, (N,) float32."""
        ...

    def all(self, users_ME: tf.Tensor, items_VE: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """The score of every user and every item, (M, V) float32."""
        ...


class InnerProduct:
    """Scores that are inner products of codes."""

    inner: ClassVar[bool] = True
    biased: ClassVar[bool] = False

    def pairs(self, users_NE: tf.Tensor, items_NE: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """See `Scorer`."""
        return tf.reduce_sum(users_NE * items_NE, axis=1)

    def all(self, users_ME: tf.Tensor, items_VE: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """See `Scorer`."""
        return tf.matmul(users_ME, items_VE, transpose_b=True)


@dataclasses.dataclass(frozen=True)
class MatrixFactorization(InnerProduct):
    """u v + b_u + b_v (Koren, Bell & Volinsky 2009, equation 4; its mean is the model's).

    dim: D, of u and v. biased: whether there are biases. They are the last number of their row, and
    in the codes (u, b_u, 1) and (v, 1, b_v) a part of the inner product.
    """

    dim: int
    biased: bool = True

    @property
    def columns(self) -> tuple[int, int]:
        """D, and the bias."""
        return self.dim + self.biased, self.dim + self.biased

    def kernels(self, seed: int) -> dict[str, TableSpec]:
        """None."""
        return {}

    def users(self, rows_ND: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """See `Scorer`."""
        return _with_column(rows_ND, 1.0) if self.biased else rows_ND

    def items(self, rows_ND: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """See `Scorer`."""
        if not self.biased:
            return rows_ND
        return tf.concat([rows_ND[:, :-1], tf.ones_like(rows_ND[:, :1]), rows_ND[:, -1:]], axis=1)


@dataclasses.dataclass(frozen=True)
class ItemBiased(InnerProduct):
    """u v + t b_v, or cos(u, v) + t b_v; how popular an item is need not be told by its vector.

    For a softmax over items, where a user's bias would be in all scores alike. dim: D. cosine:
    which of both. unit: t, by which such a softmax divides. The bias is the last number of an
    item's row. Codes are (u, t) and (v, b_v), with u and v of length 1 for cosines.
    """

    dim: int
    cosine: bool
    unit: float
    biased: ClassVar[bool] = True

    @property
    def columns(self) -> tuple[int, int]:
        """D; D and the bias."""
        return self.dim, self.dim + 1

    def kernels(self, seed: int) -> dict[str, TableSpec]:
        """None."""
        return {}

    def users(self, rows_ND: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """See `Scorer`."""
        return _with_column(self._vectors(rows_ND), self.unit)

    def items(self, rows_ND: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """See `Scorer`."""
        return tf.concat([self._vectors(rows_ND[:, :-1]), rows_ND[:, -1:]], axis=1)

    def _vectors(self, rows_ND: tf.Tensor) -> tf.Tensor:
        return tf.math.l2_normalize(rows_ND, axis=1) if self.cosine else rows_ND


def _with_column(rows_ND: tf.Tensor, value: float) -> tf.Tensor:
    """Return the rows with one more column, which is `value` in all of them."""
    # tf.pad takes a value from host memory, and a GPU would copy the constant there at each step.
    return tf.concat([rows_ND, tf.fill([tf.shape(rows_ND)[0], 1], value)], axis=1)
