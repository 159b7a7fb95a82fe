"""What the output layers of app.keras share: a loss of app.losses as a layer of Keras."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ..losses import inference
from ..losses.base import NormalizedLoss
from ..tables.id_checks import check_ids
from ..tables.variable import host_variable
from ..types import HOST
from . import softmax_counts, softmax_gradients
from .backend import require_tensorflow


class OutputLayer(keras.layers.Layer):
    """Predicts one of V words from a hidden vector; `app.keras.softmax_layers` tells how to use it.

    A class gives `make_loss`, and the arguments of its own in `get_config`.
    """

    def __init__(
        self, vocabulary_size: int, counts: Any = None, use_bias: bool = True, **options: Any
    ):
        require_tensorflow()
        super().__init__(autocast=False, **options)  # tables are read as they are stored
        if isinstance(vocabulary_size, bool) or int(vocabulary_size) != vocabulary_size:
            raise ValueError(f"{self.name}: vocabulary_size={vocabulary_size!r}: give an integer")
        if not 1 <= vocabulary_size < 2**31:
            raise ValueError(
                f"{self.name}: vocabulary_size={vocabulary_size}: give a number from 1 to 2**31 - 1"
            )
        self.vocabulary_size, self.use_bias = int(vocabulary_size), use_bias
        self._counts_V = None
        if counts is not None:
            self._counts_V = softmax_counts.checked(counts, self.vocabulary_size, self.name)
        self.supports_masking = True
        self.supports_jit = False  # which rows a step reads is known in the step only

    def make_loss(self, counts_V: np.ndarray, columns: int) -> NormalizedLoss:
        """The loss for words by descending count, and vectors of so many columns."""
        raise NotImplementedError

    def build(self, hidden_shape: Any, targets_shape: Any = None) -> None:
        """Makes the tables."""
        if hidden_shape[-1] is None:
            raise ValueError(f"{self.name}: hidden has an unknown last dimension; give it a size")
        self.input_spec = keras.layers.InputSpec(axes={-1: hidden_shape[-1]})
        counts_V, order_V = self._counts_V, None
        if counts_V is None:
            counts_V = softmax_counts.zipf(self.vocabulary_size)
        elif (order_V := softmax_counts.order(counts_V)) is not None:
            counts_V = counts_V[order_V]
        self._ids_V = order_V
        self._made: list[tf.Variable] = []  # where exports and checkpoints of TensorFlow look
        with tf.init_scope(), tf.variable_creator_scope(self._keep):
            self._rank_V = None
            if order_V is not None:
                self._rank_V = host_variable(softmax_counts.inverse(order_V))
            self._output = self.make_loss(counts_V, hidden_shape[-1] + self.use_bias)
        self._tables = {}
        for name, spec in self._output.tables().items():
            self._tables[name] = self.add_weight(
                (spec.rows, spec.columns),
                lambda shape, dtype=None, spec=spec: tf.cast(spec.initial(shape), dtype),
                name=name,
            )
            self._tables[name].is_table = True  # for the optimizers of app.keras
            # tf.train.Checkpoint saves variables that are attributes, and none in a dictionary.
            setattr(self, f"_table_{name}", self._tables[name])

    def call(
        self, hidden: Any, targets: Any, hidden_mask: Any = None, training: bool | None = None
    ) -> tf.Tensor:
        """-log P of each target, float32 of the targets' shape; 0 where the mask is False.

        hidden: (..., D). targets: integer ids, (...). hidden_mask: bool, (...); that of Keras comes
        by itself.
        """
        hidden, targets = tf.convert_to_tensor(hidden), tf.convert_to_tensor(targets)
        self._check(hidden.shape, targets.shape, targets.dtype)
        targets = tf.reshape(targets, tf.shape(hidden)[:-1])  # refuses another number of them
        if hidden_mask is None:
            losses = self._estimate(*self._flat(hidden, targets), training)
            return tf.reshape(losses, tf.shape(targets))
        with tf.device(HOST):  # with the ids, as how many there are gives all further shapes
            where = tf.cast(tf.where(hidden_mask), tf.int32)
            chosen = tf.gather_nd(targets, where)
        losses_N = self._estimate(*self._flat(tf.gather_nd(hidden, where), chosen), training)
        return tf.scatter_nd(where, losses_N, tf.shape(targets))

    def compute_output_spec(
        self, hidden: Any, targets: Any, hidden_mask: Any = None, training: Any = None
    ) -> keras.KerasTensor:
        """That of `call`."""
        self._check(hidden.shape, targets.shape, tf.as_dtype(targets.dtype))
        return keras.KerasTensor(targets.shape, "float32")

    def log_probability(self, hidden: Any, targets: Any) -> tf.Tensor:
        """The exact log P of each target, float32 of the targets' shape; arguments as of `call`."""
        self._build_for(hidden)
        return -self(hidden, targets, training=False)

    def distribution(self, hidden: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """All words, in blocks: ids (M,) and log P (..., M) float32 of each given each vector.

        hidden: (..., D). Runs eagerly, as the blocks are read one by one.
        """
        hidden_ND, shape = self._vectors(hidden)
        for ranks_M, found_NM in inference.distribution(self._output, hidden_ND, self._gather()):
            yield self._ids(ranks_M), found_NM.reshape(*shape, len(ranks_M))

    def top_k(self, hidden: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k likeliest words, exact: ids and log P, (..., k) both, the most likely first.

        hidden: (..., D). Fewer than k where there are fewer words. Runs eagerly.
        """
        if k < 1:
            raise ValueError(f"{self.name}: k={k}: give a positive number")
        hidden_ND, shape = self._vectors(hidden)
        ranks_NK, found_NK = inference.top_k(self._output, hidden_ND, k, self._gather())
        return tuple(
            found.reshape(*shape, found.shape[1]) for found in (self._ids(ranks_NK), found_NK)
        )

    def get_config(self) -> dict[str, Any]:
        """The arguments; counts as text."""
        counts_V = self._counts_V
        return super().get_config() | {
            "vocabulary_size": self.vocabulary_size,
            "counts": None if counts_V is None else softmax_counts.packed(counts_V),
            "use_bias": self.use_bias,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> OutputLayer:
        """The layer that `get_config` is of."""
        if config.get("counts") is not None:
            config = config | {"counts": softmax_counts.unpacked(config["counts"])}
        return cls(**config)

    def _estimate(
        self, hidden_ND: tf.Tensor, targets_N: tf.Tensor, training: bool | None
    ) -> tf.Tensor:
        return softmax_gradients.exact(self._output, self._values(), hidden_ND, targets_N)

    def _check(self, hidden: Any, targets: Any, dtype: tf.DType) -> None:
        if not dtype.is_integer:
            raise ValueError(
                f"{self.name}: targets come as {dtype.name}; pass integers, with "
                "keras.Input(..., dtype='int32')"
            )
        hidden, targets = tf.TensorShape(hidden), tf.TensorShape(targets)
        if not hidden[:-1].is_compatible_with(targets):
            raise ValueError(
                f"{self.name}: hidden is of shape {hidden} and needs targets of shape "
                f"{hidden[:-1]}, not {targets}"
            )

    def _flat(self, hidden: tf.Tensor, targets: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The vectors (N, columns) and the ranks of the targets (N,)."""
        ids_N = check_ids(tf.reshape(targets, [-1]), self.vocabulary_size, self.name)
        with tf.device(HOST):
            ids_N = tf.cast(ids_N, tf.int32)
            targets_N = ids_N if self._rank_V is None else tf.gather(_here(self._rank_V), ids_N)
        return self._extended(hidden), targets_N

    def _extended(self, hidden: tf.Tensor) -> tf.Tensor:
        """The vectors, (N, columns) of the compute dtype: with a column of ones for the bias."""
        hidden_ND = tf.cast(tf.reshape(hidden, (-1, hidden.shape[-1])), self.compute_dtype)
        if not self.use_bias:
            return hidden_ND
        return tf.concat([hidden_ND, tf.ones_like(hidden_ND[:, :1])], axis=1)

    def _vectors(self, hidden: Any) -> tuple[tf.Tensor, list[int]]:
        self._build_for(hidden)
        hidden = tf.convert_to_tensor(hidden)
        return self._extended(hidden), hidden.shape[:-1].as_list()

    def _build_for(self, hidden: Any) -> None:
        if not self.built:
            self.build(tuple(hidden.shape))

    def _values(self) -> dict[str, tf.Variable | tf.Tensor]:
        """The tables by name."""
        return {name: _here(table.value) for name, table in self._tables.items()}

    def _gather(self) -> Any:
        return softmax_gradients.gather_of(self._values())

    def _ids(self, ranks: np.ndarray) -> np.ndarray:
        return ranks if self._ids_V is None else self._ids_V[ranks]

    def _keep(self, make: Any, **options: Any) -> tf.Variable:
        self._made.append(make(**options))
        return self._made[-1]


def _here(value: tf.Variable | tf.Tensor) -> tf.Variable | tf.Tensor:
    """Of a variable of tf.distribute, which would be read whole, the part in this replica."""
    return value._get() if isinstance(value, tf.distribute.DistributedValues) else value
