"""A recurrent language model: predicts every token of a text from those before it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from ..input.tokens import decode
from ..losses.base import NormalizedLoss, Predictions
from ..tables.base import TableSpec
from ..tables.initial import Uniform
from ..tables.row_reads import take
from ..types import HOST, Batch, Rows
from . import recurrent
from .base import Outcome
from .words import draw_seed, initial_seed, loss_outcome

# Of the word vectors at first, as of keras.layers.Embedding.
_LIMIT = 0.05


@dataclasses.dataclass(frozen=True)
class LanguageModel:
    """Word vectors, a recurrent cell, and a loss (Mikolov et al. 2010, with the cells of today).

    A batch is B rows of T + 1 tokens, each the next T tokens of one of B streams after the one
    before them: T inputs, and the T tokens that follow them to predict (see `input.sequences`). The
    state of a stream is carried from batch to batch in a table of its own, and is zeros where the
    row begins a stream. Gradients end where the row begins (truncated backpropagation).

    The loss has H + 1 columns: a 1 follows the units, so that each of its rows has a bias. Biases
    start at `priors` (see `losses.base.NormalizedLoss`), so that the shares of words need not be
    learned.

    size: V. dim: D, of the word vectors. hidden: H. streams: B. seed: of the initial values.
    dtype: of the products. micro_batches: of a step, each of B streams of its own.
    """

    size: int
    dim: int
    cell: recurrent.Cell
    hidden: int
    streams: int
    output: NormalizedLoss
    priors: Mapping[str, np.ndarray]
    seed: int
    dtype: tf.DType = tf.float32
    micro_batches: int = 1

    def tables(self) -> dict[str, TableSpec]:
        """Word vectors are rows of `input`; kernels and biases are read whole, as is `state`."""
        units, columns = self.hidden, self.cell.gates * self.hidden
        states = self.streams * self.micro_batches
        return {
            "input": TableSpec(
                self.size, self.dim, self._uniform("initial", _LIMIT), by_frequency=True
            ),
            # Glorot & Bengio 2010, equation 16, and orthogonal rows (Saxe et al. 2014): as Keras.
            "kernel": TableSpec(
                self.dim, columns, self._uniform("kernel", math.sqrt(6 / (self.dim + columns)))
            ),
            "recurrent": TableSpec(units, columns, self._orthogonal),
            "bias": TableSpec(self.cell.biases, columns, lambda _: self.cell.bias(units)),
            "state": TableSpec(states, self.cell.states * units, tf.zeros, trained=False),
            **{name: self._biased(name, spec) for name, spec in self.output.tables().items()},
        }

    def lookups(self, batch: Batch) -> dict[str, tf.Tensor]:
        """The batch's inputs, all of the small tables, and what the loss needs."""
        targets_N1 = _targets(batch.data)
        seed = draw_seed(batch, "negatives")
        return {
            **self.input_lookups(batch.data),
            "state": batch.part * self.streams + tf.range(self.streams),
            **self.output.lookups(targets_N1, targets_N1.shape[0], seed),
        }

    def input_lookups(self, tokens_BL: tf.Tensor) -> dict[str, tf.Tensor]:
        """The ids that `predictions` needs."""
        return {
            "input": _inputs(tokens_BL),
            "kernel": tf.range(self.dim),
            "recurrent": tf.range(self.hidden),
            "bias": tf.range(self.cell.biases),
        }

    def loss(self, batch: Batch, rows: dict[str, Rows]) -> Outcome:
        """The loss of all tokens, their number, and the states that the next batch begins with."""
        state_BS = tf.ensure_shape(rows["state"].values_UD, (self.streams, None))
        predictions, state_BS = self.predictions(batch.data, rows, state_BS)
        count = tf.reduce_sum(predictions.weights_GNM)
        return loss_outcome(self.output, predictions, rows, count)._replace(
            state={"state": state_BS}
        )

    def predictions(
        self, tokens_BL: tf.Tensor, rows: dict[str, Rows], state_BS: tf.Tensor
    ) -> tuple[Predictions, tf.Tensor]:
        """What is to be predicted, in groups of one vector and one token, and the states after it.

        rows: of `input_lookups`. state_BS: the states before, for as many streams as there are
        rows of tokens. Predictions come step after step, so that no vector has to be moved.
        """
        streams, length = tokens_BL.shape
        units, columns = self.hidden, self.cell.gates * self.hidden

        def whole(name: str, count: int) -> tf.Tensor:
            # The distinct rows of a range of ids are all of them, in order.
            return tf.ensure_shape(rows[name].values_UD, (count, columns))

        kernel_DG = tf.cast(whole("kernel", self.dim), self.dtype)
        biases = tf.unstack(whole("bias", self.cell.biases))
        vectors_ND = take(rows["input"], self.dtype)
        inputs_NG = tf.cast(tf.matmul(vectors_ND, kernel_DG), tf.float32) + biases[0]
        inputs_TBG = tf.reshape(inputs_NG, (length - 1, streams, columns))
        # PAD is no beginning, and a complement of an id is.
        began_B1 = tokens_BL[:, :1] < 0
        hidden_TBH, state_BS = recurrent.run(
            self.cell,
            inputs_TBG,
            tf.where(began_B1, 0.0, state_BS),
            tf.cast(whole("recurrent", units), self.dtype),
            *biases[1:],
        )
        hidden_NH = tf.cast(tf.reshape(hidden_TBH, (-1, units)), self.dtype)
        ones_N1 = tf.ones((hidden_NH.shape[0], 1), self.dtype)
        predictions = Predictions(
            tf.concat([hidden_NH, ones_N1], axis=1)[:, tf.newaxis],
            _targets(tokens_BL),
            _weights(tokens_BL),
        )
        return predictions, state_BS

    def _biased(self, name: str, spec: TableSpec) -> TableSpec:
        """A table of the loss, with the bias of each row in its last column."""
        if name not in self.priors:
            return spec
        prior_V1 = self.priors[name][:, np.newaxis]
        return dataclasses.replace(
            spec, initial=lambda shape: tf.pad(prior_V1, [[0, 0], [shape[1] - 1, 0]])
        )

    def _uniform(self, stream: str, limit: float) -> Uniform:
        return Uniform(limit, initial_seed(stream, self.seed))

    def _orthogonal(self, shape: tuple[int, int]) -> tf.Tensor:
        """Rows at right angles, of length 1; wider than high."""
        seeds = [initial_seed("recurrent", self.seed), 0]
        drawn = tf.random.stateless_normal(shape[::-1], seeds)
        found, triangle = tf.linalg.qr(drawn)
        return tf.transpose(found * tf.sign(tf.linalg.diag_part(triangle)))


def _inputs(tokens_BL: tf.Tensor) -> tf.Tensor:
    with tf.device(HOST):
        return _by_step(decode(tokens_BL).ids[:, :-1])


def _targets(tokens_BL: tf.Tensor) -> tf.Tensor:
    with tf.device(HOST):
        return _by_step(decode(tokens_BL).ids[:, 1:])[:, tf.newaxis]


def _weights(tokens_BL: tf.Tensor) -> tf.Tensor:
    with tf.device(HOST):
        weights_N = tf.cast(_by_step(decode(tokens_BL).real[:, 1:]), tf.float32)
        return weights_N[:, tf.newaxis, tf.newaxis]


def _by_step(values_BT: tf.Tensor) -> tf.Tensor:
    """Values of all streams, step after step: (T B,)."""
    return tf.reshape(tf.transpose(values_BT), [-1])
