"""Run one side of the benchmark `sparse`, in a process of its own.

A step looks up the vectors of some ids and moves them towards a target (mean squared error).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from app import keras as row_keras
from app.assembly.learning import OPTIMIZERS
from app.settings import OptimizerConfig
from app.tables.device import DeviceTable, compute_in_graph
from app.tables.row_reads import take
from app.training.step import train_step
from app.types import Batch, Rows
from tests.benchmarks import steps

RATE = 0.01  # the speed of no side depends on the rate
BATCH = (128, 20)
# Batches of ids, used in turn: enough that the rows of a batch have left the processor's caches
# when it is used again.
_POOL = 256


class SquaredError(NamedTuple):
    """A model (`models.base.Model`): the mean squared error of the vectors of the ids.

    Attributes:
        target_ND: The wanted vectors.
    """

    target_ND: tf.Tensor

    def lookups(self, batch: Batch) -> dict[str, tf.Tensor]:
        return {"table": batch.data}

    def loss(self, batch: Batch, rows: dict[str, Rows]) -> tuple[tf.Tensor, tf.Tensor]:
        vectors_ND = take(rows["table"], tf.float32)
        return tf.reduce_mean(tf.square(vectors_ND - self.target_ND)), tf.constant(1.0)


class Side(NamedTuple):
    """A side.

    Attributes:
        blocks: Called as `blocks(steps, count)`; see `steps.measure_blocks`.
        gather: Returns the rows of the given ids.
        bytes: Returns the bytes of the table and its slots, after the first step.
    """

    blocks: Callable[[int, int], list[float]]
    gather: Callable[[tf.Tensor], tf.Tensor]
    bytes: Callable[[], int]


def measure(job: Any) -> dict[str, Any]:
    """Train one side in this process.

    Args:
        job: Has `optimizer`, `side`, `in_fit` and `settings` (the class of the optimizer in fit,
            and its arguments), `rows`, `dim`, `steps` and `seed`.

    Returns:
        The figures of `steps.measure_blocks`, and `table_bytes` (of table and slots).

    Raises:
        RunError: A row of the first batch did not change, or not to finite numbers.
    """
    ids_SBT, target_BTD, initial = make_data(job)
    side = (_on_table if job.side == "table" else _in_fit)(job, ids_SBT, target_BTD, initial)
    before = side.gather(ids_SBT[0]).numpy()
    figures = steps.measure_blocks(side.blocks, job.steps)
    steps.check_changed(f"{job.optimizer}, {job.side}", before, side.gather(ids_SBT[0]).numpy())
    return figures | {"table_bytes": side.bytes()}


def make_data(job: Any) -> tuple[np.ndarray, np.ndarray, keras.Initializer]:
    """Draw the ids of 256 batches and a target; add the initializer of keras.layers.Embedding."""
    random = np.random.default_rng(job.seed)
    ids_SBT = random.integers(0, job.rows, (_POOL, *BATCH), dtype=np.int32)
    target_BTD = random.random((*BATCH, job.dim), dtype=np.float32)
    return ids_SBT, target_BTD, keras.initializers.RandomUniform(-0.05, 0.05, seed=job.seed)


def _on_table(
    job: Any, ids_SBT: np.ndarray, target_BTD: np.ndarray, initial: keras.Initializer
) -> Side:
    """Return the side of the trainer's step on a table of Lexrow."""
    rule = OPTIMIZERS[job.optimizer](OptimizerConfig())
    model = SquaredError(tf.reshape(tf.constant(target_BTD), [-1, job.dim]))

    def start(shape: tuple[int, int]) -> tf.Tensor:
        return compute_in_graph(lambda: initial(shape))  # without temporary copies

    table = DeviceTable(job.rows, job.dim, start, slots=rule.slots)
    pool, rate = itertools.cycle([tf.constant(ids_BT) for ids_BT in ids_SBT]), tf.constant(RATE)
    numbers = itertools.count(1)

    @tf.function(autograph=False)
    def train(ids_BT: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        return train_step(model, {"table": table}, rule, [Batch(ids_BT, None)], rate, number)[0]

    def step() -> tf.Tensor:
        return train(next(pool), tf.constant(next(numbers), tf.int64))

    return Side(functools.partial(steps.call_seconds, step), table.gather, table.bytes)


def _in_fit(
    job: Any, ids_SBT: np.ndarray, target_BTD: np.ndarray, initial: keras.Initializer
) -> Side:
    """Return a side in keras.fit; a block is an epoch."""
    is_ours = job.side == "fit"
    embedding = row_keras.RowEmbedding if is_ours else keras.layers.Embedding
    optimizers = row_keras if is_ours else keras.optimizers
    optimizer = getattr(optimizers, job.in_fit)(RATE, **job.settings)
    layer = embedding(job.rows, job.dim, embeddings_initializer=initial)
    model = keras.Sequential([keras.Input(BATCH[1:], dtype="int32"), layer])
    model.compile(optimizer, loss="mse", jit_compile=job.side == "keras_jit" or "auto")
    target = tf.constant(target_BTD)
    batches = (
        tf.data.Dataset.from_tensor_slices(ids_SBT)
        .map(lambda ids_BT: (ids_BT, target))
        .repeat()
        .prefetch(tf.data.AUTOTUNE)
    )

    def gather(ids: tf.Tensor) -> tf.Tensor:
        handle = layer.embeddings.value.handle
        return tf.raw_ops.ResourceGather(resource=handle, indices=ids, dtype=tf.float32)

    return Side(
        lambda count, epochs: steps.fit_seconds(model, batches, epochs, count),
        gather,
        lambda: steps.state_bytes([layer.embeddings, *optimizer.variables]),
    )
