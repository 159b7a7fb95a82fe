"""Scorers of neural collaborative filtering (He et al. 2017): GMF, MLP and their sum, NeuMF."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import tensorflow as tf

from ..tables.base import TableSpec
from ..tables.initial import Uniform
from .factorization import Kernels, Scorer
from .seeds import initial_seed


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
