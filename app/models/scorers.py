"""Scorers of a user and an item: matrix factorization and neural collaborative filtering.

A scorer first turns the row of each user and of each item into a code of E numbers, each by itself.
Then it scores pairs of codes. So the work on a row is done once, however many pairs it is in.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import ClassVar

import tensorflow as tf

from ..tables.base import TableSpec
from ..tables.initial import Uniform
from .base import initial_seed

# The rows of the scorer's own small tables, by name.
Kernels = Mapping[str, tf.Tensor]


class Scorer:
    """Scores a user and an item from their rows.

    The methods here are of a scorer whose codes are the rows, and whose scores are inner products
    of codes. A subclass overrides the methods in which it differs.

    Attributes:
        dim: The columns of a row, D.
        inner: Whether a score is the inner product of the two codes.
        biased: Whether the last number of an item's row is its bias.
    """

    dim: int
    inner: ClassVar[bool] = True
    biased: ClassVar[bool] = False

    @property
    def columns(self) -> tuple[int, int]:
        """The columns of a user's row, and the columns of an item's row; both D by default."""
        return self.dim, self.dim

    def kernels(self, seed: int) -> dict[str, TableSpec]:
        """Return the specs of the scorer's own small tables, by name; every step reads all rows."""
        return {}

    def encode_users(self, rows_ND: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """Return the codes of users, (N, E) float32."""
        return rows_ND

    def encode_items(self, rows_ND: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """Return the codes of items, (N, E) float32."""
        return rows_ND

    def score_pairs(self, users_NE: tf.Tensor, items_NE: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """Return the score of each user and the item beside it, (N,) float32."""
        return tf.reduce_sum(users_NE * items_NE, axis=1)

    def score_all(self, users_ME: tf.Tensor, items_VE: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """Return the score of every user and every item, (M, V) float32; here inner products."""
        return tf.matmul(users_ME, items_VE, transpose_b=True)


@dataclasses.dataclass(frozen=True)
class MatrixFactorization(Scorer):
    """The score u v + b_u + b_v (Koren, Bell & Volinsky 2009, equation 4).

    The paper's mean rating is added by the model. A bias is the last number of its row. The codes
    (u, b_u, 1) and (v, 1, b_v) make the biases a part of the inner product.

    Attributes:
        dim: The length D of u and of v.
        biased: Whether there are biases.
    """

    dim: int
    biased: bool = True

    @property
    def columns(self) -> tuple[int, int]:
        """The columns of a user's row and of an item's row: D each, or D + 1 with biases."""
        return self.dim + self.biased, self.dim + self.biased

    def encode_users(self, rows_ND: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """Return the codes (u, b_u, 1), or the rows as they are if there are no biases."""
        return _append_column(rows_ND, 1.0) if self.biased else rows_ND

    def encode_items(self, rows_ND: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """Return the codes (v, 1, b_v), or the rows as they are if there are no biases."""
        if not self.biased:
            return rows_ND
        vectors_ND, biases_N1 = _split_bias(rows_ND)
        return tf.concat([vectors_ND, tf.ones_like(biases_N1), biases_N1], axis=1)


@dataclasses.dataclass(frozen=True)
class ItemBiased(Scorer):
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
    biased: ClassVar[bool] = True

    @property
    def columns(self) -> tuple[int, int]:
        """The columns of a user's row, D, and of an item's row, D + 1 with the bias."""
        return self.dim, self.dim + 1

    def encode_users(self, rows_ND: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """Return the codes (u, t)."""
        return _append_column(self._vectors(rows_ND), self.unit)

    def encode_items(self, rows_ND: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """Return the codes (v, b_v)."""
        vectors_ND, biases_N1 = _split_bias(rows_ND)
        return tf.concat([self._vectors(vectors_ND), biases_N1], axis=1)

    def _vectors(self, rows_ND: tf.Tensor) -> tf.Tensor:
        """Return the rows, scaled to length 1 if `cosine` is set."""
        return tf.math.l2_normalize(rows_ND, axis=1) if self.cosine else rows_ND


def _split_bias(rows_ND: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return all columns but the last, and the last one, (N, 1)."""
    # Not two slices, whose gradients are padded to all columns and added: four more passes.
    vectors_ND, biases_N1 = tf.split(rows_ND, [-1, 1], axis=1)
    return vectors_ND, biases_N1


def _append_column(rows_ND: tf.Tensor, value: float) -> tf.Tensor:
    """Return the rows with one more column, which is `value` in all of them."""
    # tf.pad reads the value from host memory, so with a GPU the constant would be copied each step.
    return tf.concat([rows_ND, tf.fill([tf.shape(rows_ND)[0], 1], value)], axis=1)


@dataclasses.dataclass(frozen=True)
class Gmf(Scorer):
    """Generalized matrix factorization (section 3.2): the score h (u * v), where h has D weights.

    Attributes:
        dim: The length D of u, v and h.
    """

    dim: int

    def kernels(self, seed: int) -> dict[str, TableSpec]:
        """Return the spec of the table `products`, which holds h, (D, 1)."""
        return {"products": TableSpec(self.dim, 1, _glorot(self.dim, 1, seed))}

    def encode_users(self, rows_ND: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """Return h * u, so that a score is an inner product."""
        return rows_ND * kernels["products"][:, 0]


@dataclasses.dataclass(frozen=True)
class Mlp(Scorer):
    """A multilayer perceptron over the rows of a user and an item, concatenated (section 3.3).

    The product of the first layer's kernel and the concatenated rows is the sum of two products,
    one for each row. These products are the codes, so no rows are concatenated. The layers are
    joined by ReLU.

    Attributes:
        dim: The columns of a row, D.
        layers: The units of each layer. The units of the last one give the score.
    """

    dim: int
    layers: tuple[int, ...]
    inner: ClassVar[bool] = False

    def kernels(self, seed: int) -> dict[str, TableSpec]:
        """Return the spec of a kernel (inputs + 1, units) for each layer; its last row is the bias.

        The inputs of the first layer are the user's, then the item's. The last kernel gives the
        score and has no bias, so it has a row less.
        """
        sizes = (2 * self.dim, *self.layers, 1)
        specs = {}
        for number, (inputs, units) in enumerate(zip(sizes[:-1], sizes[1:], strict=True)):
            bias = number < len(self.layers)
            specs[f"layer_{number}"] = TableSpec(
                inputs + bias, units, _glorot(inputs, units, seed + number)
            )
        return specs

    def encode_users(self, rows_ND: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """Return the users' part of the first layer's sums, with the bias, before the ReLU."""
        kernel = kernels["layer_0"]
        return tf.matmul(rows_ND, kernel[: self.dim]) + kernel[-1]

    def encode_items(self, rows_ND: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """Return the items' part of the first layer's sums, without the bias, before the ReLU."""
        return tf.matmul(rows_ND, kernels["layer_0"][self.dim : -1])

    def score_pairs(self, users_NE: tf.Tensor, items_NE: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """Return the score of each pair; a single user or item is paired with all of the others."""
        hidden_NE = tf.nn.relu(users_NE + items_NE)
        for number in range(1, len(self.layers)):
            kernel = kernels[f"layer_{number}"]
            hidden_NE = tf.nn.relu(tf.matmul(hidden_NE, kernel[:-1]) + kernel[-1])
        return tf.matmul(hidden_NE, kernels[f"layer_{len(self.layers)}"])[:, 0]

    def score_all(self, users_ME: tf.Tensor, items_VE: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """Return all scores, computed one user at a time to save memory."""
        return tf.map_fn(
            lambda user_E: self.score_pairs(user_E[tf.newaxis], items_VE, kernels), users_ME
        )


@dataclasses.dataclass(frozen=True)
class NeuMf(Scorer):
    """The sum of GMF and MLP (section 3.4).

    The two share no columns: a row has the columns of GMF, then the columns of the MLP. Neither is
    pretrained, as section 3.4.1 does.

    Attributes:
        gmf: Generalized matrix factorization.
        mlp: The multilayer perceptron.
    """

    gmf: Gmf
    mlp: Mlp
    inner: ClassVar[bool] = False

    @property
    def columns(self) -> tuple[int, int]:
        """The columns of a user's row and of an item's row, both D of GMF plus D of the MLP."""
        both = self.gmf.dim + self.mlp.dim
        return both, both

    def kernels(self, seed: int) -> dict[str, TableSpec]:
        """Return the specs of the tables of both scorers, with different seeds."""
        return {**self.gmf.kernels(seed + len(self.mlp.layers) + 1), **self.mlp.kernels(seed)}

    def encode_users(self, rows_ND: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """Return the codes of both scorers, concatenated."""
        gmf_ND, mlp_ND = self._split(rows_ND)
        return tf.concat(
            [self.gmf.encode_users(gmf_ND, kernels), self.mlp.encode_users(mlp_ND, kernels)], axis=1
        )

    def encode_items(self, rows_ND: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """Return the codes of both scorers, concatenated."""
        gmf_ND, mlp_ND = self._split(rows_ND)
        return tf.concat(
            [self.gmf.encode_items(gmf_ND, kernels), self.mlp.encode_items(mlp_ND, kernels)], axis=1
        )

    def score_pairs(self, users_NE: tf.Tensor, items_NE: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """Return the sum of both scores of each pair."""
        users, items = self._split(users_NE), self._split(items_NE)
        return self.gmf.score_pairs(users[0], items[0], kernels) + self.mlp.score_pairs(
            users[1], items[1], kernels
        )

    def score_all(self, users_ME: tf.Tensor, items_VE: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """Return the sum of both scores of every user and every item."""
        users, items = self._split(users_ME), self._split(items_VE)
        return self.gmf.score_all(users[0], items[0], kernels) + self.mlp.score_all(
            users[1], items[1], kernels
        )

    def _split(self, values_NE: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Split rows or codes into the columns of GMF and the columns of the MLP."""
        gmf_ND, mlp_NE = tf.split(values_NE, [self.gmf.dim, -1], axis=1)
        return gmf_ND, mlp_NE


def _glorot(inputs: int, units: int, seed: int):
    """Return a function from a shape to a kernel's initial values.

    The first `inputs` rows are uniform (Glorot & Bengio 2010, equation 16). A further row, the
    bias, is 0.
    """
    drawn = Uniform(math.sqrt(6 / (inputs + units)), initial_seed("kernel", seed))
    return lambda shape: tf.pad(drawn((inputs, units)), [[0, shape[0] - inputs], [0, 0]])
