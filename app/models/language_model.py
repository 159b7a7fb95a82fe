"""The recurrent language model, which predicts every token of a text from the tokens before it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from ..input.token_rows import decode
from ..losses.base import NormalizedLoss, Predictions
from ..tables.base import TableSpec
from ..tables.initial import Constant, LastColumn, Uniform
from ..tables.row_reads import take
from ..types import HOST, Batch, Rows
from . import recurrent
from .base import Outcome, apply_loss
from .seeds import draw_seed, initial_seed

# The largest initial number of a word vector, as in keras.layers.Embedding.
_LIMIT = 0.05


@dataclasses.dataclass(frozen=True)
class LanguageModel:
    """Word vectors, a recurrent cell, and a loss (Mikolov et al. 2010, with the cells of today).

    A batch has B rows of T + 1 tokens. Each row is the next part of one of B streams of text: T
    inputs, and the T tokens that follow them (see `input.sequences`). The state of each stream is
    carried from batch to batch in the table `state`, and is 0 where a stream begins. Gradients end
    at the beginning of a row (truncated backpropagation through time).

    The loss has H + 1 columns. A 1 is appended to the output of the cell, so each row of the loss
    has a bias. Biases start at `priors`, so that the shares of words need not be learned.

    Attributes:
        size: The number of words, V.
        dim: The columns of a word vector, D.
        cell: The recurrent cell.
        hidden: The units of the cell, H.
        streams: The number of streams of a batch, B.
        output: The loss by which the cell's output predicts words.
        priors: The result of `output.priors`.
        seed: The seed of the initial values.
        dtype: The dtype of the matrix products.
        micro_batches: The micro-batches of a step, each with B streams of its own.
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
        """Return the specs of the tables of word vectors, the cell, its states, and the loss.

        The tables of the loss start with the biases of `priors`. `state` is not trained.
        """
        units, columns = self.hidden, self.cell.gates * self.hidden
        states = self.streams * self.micro_batches
        return {
            "input": TableSpec(
                self.size, self.dim, self._uniform("initial", _LIMIT), by_frequency=True
            ),
            # As Keras: Glorot & Bengio 2010, equation 16, and orthogonal rows (Saxe et al. 2014).
            "kernel": TableSpec(
                self.dim, columns, self._uniform("kernel", math.sqrt(6 / (self.dim + columns)))
            ),
            "recurrent": TableSpec(units, columns, self._orthogonal),
            "bias": TableSpec(self.cell.biases, columns, lambda _: self.cell.bias(units)),
            "state": TableSpec(states, self.cell.states * units, Constant(0.0), trained=False),
            **{name: self._with_prior(name, spec) for name, spec in self.output.tables().items()},
        }

    def lookups(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Return the inputs, all rows of the cell's tables, the states, and the ids of the loss."""
        targets_N1 = _targets(batch.data)
        seed = draw_seed(batch, "negatives")
        return {
            **self.input_lookups(batch.data),
            "state": batch.part * self.streams + tf.range(self.streams),
            **self.output.lookups(targets_N1, targets_N1.shape[0], seed),
        }

    def input_lookups(self, tokens_BL: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the ids that `predictions` needs: the inputs, and all rows of the cell's tables.

        Args:
            tokens_BL: Rows of tokens, (B, T + 1) int32.
        """
        return {
            "input": _inputs(tokens_BL),
            "kernel": tf.range(self.dim),
            "recurrent": tf.range(self.hidden),
            "bias": tf.range(self.cell.biases),
        }

    def loss(self, batch: Batch, rows: dict[str, Rows]) -> Outcome:
        """Return the loss of all tokens, their number, and the states for the next batch."""
        state_BS = tf.ensure_shape(rows["state"].values_UD, (self.streams, None))
        predictions, state_BS = self.predictions(batch.data, rows, state_BS)
        count = tf.reduce_sum(predictions.weights_GNM)
        return apply_loss(self.output, predictions, rows, count)._replace(state={"state": state_BS})

    def predictions(
        self, tokens_BL: tf.Tensor, rows: dict[str, Rows], state_BS: tf.Tensor
    ) -> tuple[Predictions, tf.Tensor]:
        """Run the cell over the tokens, and return what it is to predict at each step.

        Args:
            tokens_BL: Rows of tokens, (B, T + 1) int32.
            rows: The rows of `input_lookups`, by name of the table.
            state_BS: The state of each stream before its row. It is replaced by 0 where the row
                begins a stream.

        Returns:
            The predictions, in groups of one vector (a 1 is appended) and one token, step after
            step, so that no vector is moved in memory; and the states after the rows.
        """
        streams, length = tokens_BL.shape
        units, columns = self.hidden, self.cell.gates * self.hidden

        def all_rows(name: str, count: int) -> tf.Tensor:
            """Return the rows of a table of the cell, (count, columns), with a static shape."""
            # The unique rows of a range of ids are all rows, in order.
            return tf.ensure_shape(rows[name].values_UD, (count, columns))

        kernel_DG = tf.cast(all_rows("kernel", self.dim), self.dtype)
        biases = tf.unstack(all_rows("bias", self.cell.biases))
        vectors_ND = take(rows["input"], self.dtype)
        inputs_NG = tf.cast(tf.matmul(vectors_ND, kernel_DG), tf.float32) + biases[0]
        inputs_TBG = tf.reshape(inputs_NG, (length - 1, streams, columns))
        # A stream begins at a token that is the complement of an id (see `input.token_rows`).
        starts_B1 = tokens_BL[:, :1] < 0
        hidden_TBH, state_BS = recurrent.run(
            self.cell,
            inputs_TBG,
            tf.where(starts_B1, 0.0, state_BS),
            tf.cast(all_rows("recurrent", units), self.dtype),
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

    def _with_prior(self, name: str, spec: TableSpec) -> TableSpec:
        """Return a table of the loss that starts as 0, but for its last column: the prior.

        A table that has no prior is returned as it is.
        """
        if name not in self.priors:
            return spec
        with tf.init_scope():  # not a constant of a graph that is traced, as large as a column
            prior_V = tf.convert_to_tensor(self.priors[name])
        return dataclasses.replace(spec, initial=LastColumn(Constant(0.0), prior_V))

    def _uniform(self, stream: str, limit: float) -> Uniform:
        """Return uniform initial values from -limit to limit, drawn by the seed of a stream."""
        return Uniform(limit, initial_seed(stream, self.seed))

    def _orthogonal(self, shape: tuple[int, int]) -> tf.Tensor:
        """Return orthogonal rows of length 1; `shape` has fewer rows than columns."""
        seeds = [initial_seed("recurrent", self.seed), 0]
        normal = tf.random.stateless_normal(shape[::-1], seeds)
        orthogonal, triangular = tf.linalg.qr(normal)
        return tf.transpose(orthogonal * tf.sign(tf.linalg.diag_part(triangular)))


def _inputs(tokens_BL: tf.Tensor) -> tf.Tensor:
    """Return the ids of all tokens but the last of each row, step after step, (T B,) int32."""
    with tf.device(HOST):
        return _by_step(decode(tokens_BL).ids[:, :-1])


def _targets(tokens_BL: tf.Tensor) -> tf.Tensor:
    """Return the ids of all tokens but the first of each row, step after step, (T B, 1) int32."""
    with tf.device(HOST):
        return _by_step(decode(tokens_BL).ids[:, 1:])[:, tf.newaxis]


def _weights(tokens_BL: tf.Tensor) -> tf.Tensor:
    """Return 1 for each target that is a token, 0 for padding, (T B, 1, 1) float32."""
    with tf.device(HOST):
        weights_N = tf.cast(_by_step(decode(tokens_BL).real[:, 1:]), tf.float32)
        return weights_N[:, tf.newaxis, tf.newaxis]


def _by_step(values_BT: tf.Tensor) -> tf.Tensor:
    """Return the values (B, T) of all streams in one list, step after step, (T B,)."""
    return tf.reshape(tf.transpose(values_BT), [-1])
