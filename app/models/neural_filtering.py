"""Neural collaborative filtering (He et al. 2017): GMF, MLP, and both at once."""

from __future__ import annotations

import dataclasses
import math

import tensorflow as tf

from ..tables.base import TableSpec
from ..tables.initial import Uniform
from .factorization import InnerProduct, Kernels
from .words import initial_seed


@dataclasses.dataclass(frozen=True)
class Gmf(InnerProduct):
    """h (u * v), generalised matrix factorisation (section 3.2): h weighs the D products."""

    dim: int

    @property
    def columns(self) -> tuple[int, int]:
        """D."""
        return self.dim, self.dim

    def kernels(self, seed: int) -> dict[str, TableSpec]:
        """h, (D, 1)."""
        return {"products": TableSpec(self.dim, 1, _glorot(self.dim, 1, seed))}

    def users(self, rows_ND: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """Those of h * u, so that the rest is an inner product."""
        return rows_ND * kernels["products"][:, 0]

    def items(self, rows_ND: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """The rows."""
        return rows_ND


@dataclasses.dataclass(frozen=True)
class Mlp:
    """Layers over a user's row and an item's, side by side (section 3.3); ReLU between them.

    The product of the first layer's kernel and two rows side by side is the sum of two products.
    So the codes are those, and no rows are joined.

    dim: D, of a row. layers: units of each, the last of which give the score.
    """

    dim: int
    layers: tuple[int, ...]
    inner: bool = False
    biased: bool = False

    @property
    def columns(self) -> tuple[int, int]:
        """D."""
        return self.dim, self.dim

    def kernels(self, seed: int) -> dict[str, TableSpec]:
        """A kernel a layer, (inputs + 1, units), its last row the bias; that of the score has none.

        The first one's inputs are the user's, then the item's.
        """
        sizes = (2 * self.dim, *self.layers, 1)
        made = {}
        for number, (inputs, units) in enumerate(zip(sizes[:-1], sizes[1:], strict=True)):
            bias = number < len(self.layers)
            made[f"layer_{number}"] = TableSpec(
                inputs + bias, units, _glorot(inputs, units, seed + number)
            )
        return made

    def users(self, rows_ND: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """Their part of the first layer, with its bias."""
        kernel = kernels["layer_0"]
        return tf.matmul(rows_ND, kernel[: self.dim]) + kernel[-1]

    def items(self, rows_ND: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """Their part of the first layer."""
        return tf.matmul(rows_ND, kernels["layer_0"][self.dim : -1])

    def pairs(self, users_NE: tf.Tensor, items_NE: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """See `Scorer`; one of the two may have a single row."""
        hidden_NE = tf.nn.relu(users_NE + items_NE)
        for number in range(1, len(self.layers)):
            kernel = kernels[f"layer_{number}"]
            hidden_NE = tf.nn.relu(tf.matmul(hidden_NE, kernel[:-1]) + kernel[-1])
        return tf.matmul(hidden_NE, kernels[f"layer_{len(self.layers)}"])[:, 0]

    def all(self, users_ME: tf.Tensor, items_VE: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """See `Scorer`; user by user, as each takes V times all units."""
        return tf.map_fn(lambda user_E: self.pairs(user_E[tf.newaxis], items_VE, kernels), users_ME)


@dataclasses.dataclass(frozen=True)
class NeuMf:
    """The sum of GMF and MLP, each with columns of its own (section 3.4): the MLP's are the last.

    Neither is trained before (their section 3.4.1).
    """

    gmf: Gmf
    mlp: Mlp
    inner: bool = False
    biased: bool = False

    @property
    def columns(self) -> tuple[int, int]:
        """Those of both."""
        both = self.gmf.dim + self.mlp.dim
        return both, both

    def kernels(self, seed: int) -> dict[str, TableSpec]:
        """Those of both."""
        return {**self.gmf.kernels(seed + len(self.mlp.layers) + 1), **self.mlp.kernels(seed)}

    def users(self, rows_ND: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """Those of both, side by side."""
        of_gmf, of_mlp = self._parted(rows_ND)
        return tf.concat([self.gmf.users(of_gmf, kernels), self.mlp.users(of_mlp, kernels)], axis=1)

    def items(self, rows_ND: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """Those of both, side by side."""
        of_gmf, of_mlp = self._parted(rows_ND)
        return tf.concat([self.gmf.items(of_gmf, kernels), self.mlp.items(of_mlp, kernels)], axis=1)

    def pairs(self, users_NE: tf.Tensor, items_NE: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """See `Scorer`."""
        users, items = self._parted(users_NE), self._parted(items_NE)
        return self.gmf.pairs(users[0], items[0], kernels) + self.mlp.pairs(
            users[1], items[1], kernels
        )

    def all(self, users_ME: tf.Tensor, items_VE: tf.Tensor, kernels: Kernels) -> tf.Tensor:
        """See `Scorer`."""
        users, items = self._parted(users_ME), self._parted(items_VE)
        return self.gmf.all(users[0], items[0], kernels) + self.mlp.all(users[1], items[1], kernels)

    def _parted(self, values_NE: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return values_NE[:, : self.gmf.dim], values_NE[:, self.gmf.dim :]


def _glorot(inputs: int, units: int, seed: int):
    """Initial values of a kernel (Glorot & Bengio 2010, equation 16, as Keras); a bias is 0."""
    drawn = Uniform(math.sqrt(6 / (inputs + units)), initial_seed("kernel", seed))
    return lambda shape: tf.pad(drawn((inputs, units)), [[0, shape[0] - inputs], [0, 0]])
