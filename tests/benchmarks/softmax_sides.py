"""Run one side of the benchmark `softmax`, in a process of its own."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from app.assembly import learning
from app.errors import RunError
from app.losses.base import Loss, Predictions
from app.models.base import Outcome
from app.optimizers.adagrad import rowwise_adagrad
from app.settings import ModelConfig
from app.tables.base import Slot, TableSpec
from app.tables.device import DeviceTable
from app.training.step import train_step
from app.types import Batch, Rows
from tests.benchmarks import steps

RATE = 0.1  # the speed of no side depends on the rate
_POOL = 64  # batches of targets, used in turn

# Called with the targets, (N,) int32, and the number of the step, int64. Returns the loss.
Step = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


def measure(job: Any) -> dict[str, Any]:
    """Train one side in this process.

    Args:
        job: Has `side`, `settings` (of the loss of Lexrow), `compute_dtype`, `words`, `targets`,
            `dim`, `steps` and `seed`.

    Returns:
        The figures of `steps.measure_blocks`, and `table_bytes` (of tables and slots).

    Raises:
        RunError: The side did not train.
    """
    random = np.random.default_rng(job.seed)
    hidden_ND = random.standard_normal((job.targets, job.dim), np.float32) / math.sqrt(job.dim)
    counts_V = 10 * job.words // np.arange(1, job.words + 1)  # by Zipf's law, the rarest 10
    make = _dense if job.side == "dense" else _ours
    step, tables = make(tf.Variable(hidden_ND, trainable=False), counts_V, job)
    cumulative_V = np.cumsum(counts_V)
    drawn_SN = random.integers(0, cumulative_V[-1], (_POOL, job.targets))
    targets_SN = np.searchsorted(cumulative_V, drawn_SN, side="right").astype(np.int32)
    batches = itertools.cycle([tf.constant(targets_N) for targets_N in targets_SN])
    specs = [tf.TensorSpec([job.targets], tf.int32), tf.TensorSpec([], tf.int64)]
    train = tf.function(step, autograph=False).get_concrete_function(*specs)
    numbers = itertools.count(1)

    def next_step() -> tf.Tensor:
        return train(next(batches), tf.constant(next(numbers), tf.int64))

    figures = steps.measure_blocks(functools.partial(steps.call_seconds, next_step), job.steps)
    shift_1D = tables["shift"].gather(tf.constant([0])).numpy()
    if not (shift_1D.any() and np.isfinite(shift_1D).all()):
        raise RunError(f"{job.side}: the hidden vectors got no finite gradient")
    return figures | {"table_bytes": sum(table.bytes() for table in tables.values())}


class OutputLayer(NamedTuple):
    """A model (`models.base.Model`) whose hidden vectors are given, but for the shift."""

    hidden_ND: tf.Variable
    output: Loss
    dtype: tf.DType

    def tables(self) -> dict[str, TableSpec]:
        shift = TableSpec(1, self.hidden_ND.shape[1], tf.zeros)
        return {"shift": shift, **self.output.tables()}

    def lookups(self, batch: Batch) -> dict[str, tf.Tensor]:
        lookups = self.output.lookups(batch.data, self.hidden_ND.shape[0], batch.seed)
        return {"shift": tf.constant([0]), **lookups}

    def loss(self, batch: Batch, rows: dict[str, Rows]) -> Outcome:
        hidden_ND = tf.cast(self.hidden_ND + rows["shift"].values_UD, self.dtype)
        weights_N11 = tf.ones((*batch.data.shape, 1))
        predictions = Predictions(hidden_ND[:, tf.newaxis], batch.data, weights_N11)
        total, parts = self.output.loss(predictions, rows)
        return Outcome(tf.convert_to_tensor(total), tf.constant(1.0), parts)


def _ours(
    hidden_ND: tf.Variable, counts_V: np.ndarray, job: Any
) -> tuple[Step, dict[str, DeviceTable]]:
    """Return the trainer's step, with the loss and dtype of the job, and its tables."""
    settings = ModelConfig(**job.settings, compute_dtype=job.compute_dtype)
    spec = learning.OutputSpec(counts_V, job.dim, job.targets, seed=0)
    dtype = tf.as_dtype(job.compute_dtype)
    model = OutputLayer(hidden_ND, learning.make_loss(settings, spec), dtype)
    rule = rowwise_adagrad()
    tables = {
        name: DeviceTable(
            spec.rows, spec.columns, spec.initial, slots=rule.slots if spec.trained else {}
        )
        for name, spec in model.tables().items()
    }

    def step(targets_N: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        batch = Batch(targets_N[:, tf.newaxis], tf.stack([tf.constant(0, tf.int64), number]))
        return train_step(model, tables, rule, [batch], tf.constant(RATE), number)[0]

    return step, tables


def _dense(
    hidden_ND: tf.Variable, counts_V: np.ndarray, job: Any
) -> tuple[Step, dict[str, DeviceTable]]:
    """Return a step of the full softmax in plain TensorFlow, and its tables."""
    tables = {
        name: DeviceTable(rows, job.dim, tf.zeros, slots={"accumulator": Slot(job.dim, 0.1)})
        for name, rows in (("output", job.words), ("shift", 1))
    }

    def step(targets_N: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        output, shift = (table.values for table in tables.values())
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([output, shift])
            scores_NV = tf.matmul(hidden_ND + shift, output, transpose_b=True)
            losses_N = tf.nn.sparse_softmax_cross_entropy_with_logits(targets_N, scores_NV)
            loss = tf.reduce_sum(losses_N)
        gradients = tape.gradient(loss, [output, shift])
        for table, gradient in zip(tables.values(), gradients, strict=True):
            tf.raw_ops.ResourceApplyAdagradV2(
                var=table.values.handle,
                accum=table.slots["accumulator"].values.handle,
                lr=tf.constant(RATE),
                epsilon=tf.constant(0.0),
                grad=gradient,
            )
        return loss

    return step, tables
