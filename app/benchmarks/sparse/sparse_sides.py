"""Run one side of the benchmark `sparse`, as a program of its own.

A step looks up the vectors of some ids and moves them towards a target (mean squared error). Ids
differ from step to step; initial rows, ids and target are the same for every side.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from ...build.updates import OPTIMIZERS
from ...config import OptimizerConfig
from ...errors import RunError
from ...keras import SGD, Adagrad, LazyAdam, LazyAdamW, RowEmbedding, RowwiseAdagrad
from ...tables.device import DeviceTable
from ...tables.row_reads import take
from ...tables.variable import compute_in_graph
from ...training.step import train_step
from ...types import Batch, Rows
from ..harness import programs
from ..harness.measured_steps import fit_seconds, gpu_peak_bytes, measure_blocks
from . import sparse_by_hand

# The speed of no side depends on the rate.
RATE = 0.01

# Batches of ids, used in turn: enough that the rows of a batch have left the processor's caches
# when it is used again.
_POOL = 256


class Side(NamedTuple):
    """A side.

    Attributes:
        blocks: Called as `blocks(steps, count)`; trains `count` blocks of `steps` steps, and
            returns the seconds of each block.
        gather: Returns the rows of the given ids.
        bytes: Returns the bytes of the table and its slots, after the first step.
    """

    blocks: Callable[[int, int], list[float]]
    gather: Callable[[tf.Tensor], tf.Tensor]
    bytes: Callable[[], int]


class Case(NamedTuple):
    """The data of all sides.

    Attributes:
        rows: Rows of the table.
        ids_SBT: The ids of S batches, int32.
        target_BTD: The wanted vectors, float32.
        initial: The initializer of the table.
    """

    rows: int
    ids_SBT: np.ndarray
    target_BTD: np.ndarray
    initial: keras.initializers.Initializer


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Train one side, and measure its steps in blocks of `steps` steps, or fewer of about 3 s.

    Args:
        job: The fields of a `sparse_case.Job`, and `seed`.

    Returns:
        `step_ms` (the median over blocks), `blocks_ms`, `block_steps`, `table_bytes` (of table and
        slots) and `device_peak_bytes` (of a GPU, else None).

    Raises:
        RunError: A row of the first batch did not change, or not to finite numbers.
    """
    case = make_case(job["rows"], job["dim"], job["seed"], job["batch"])
    side = SIDES[job["side"]](job["optimizer"], case)
    before = side.gather(case.ids_SBT[0]).numpy()
    values = measure_blocks(side.blocks, job["steps"])
    _check(job, before, side.gather(case.ids_SBT[0]).numpy())
    return values | {"table_bytes": side.bytes(), "device_peak_bytes": gpu_peak_bytes()}


def make_case(rows: int, dim: int, seed: int, batch: Sequence[int]) -> Case:
    """Draw uniform ids of 256 batches and a target; add the initializer of keras.layers.Embedding.

    Args:
        rows: Rows of the table.
        dim: Columns of the table.
        seed: The seed of all random values.
        batch: The shape of the ids of a step.
    """
    random = np.random.default_rng(seed)
    return Case(
        rows=rows,
        ids_SBT=random.integers(0, rows, (_POOL, *batch), dtype=np.int32),
        target_BTD=random.random((*batch, dim), dtype=np.float32),
        initial=keras.initializers.RandomUniform(-0.05, 0.05, seed=seed),
    )


def _check(job: dict[str, Any], before: np.ndarray, after: np.ndarray) -> None:
    """Raise RunError unless all rows of a batch changed, and to finite numbers."""
    # The speed of a side that does not train means nothing.
    changed = (before != after).any(axis=-1)
    if not (changed.all() and np.isfinite(after).all()):
        raise RunError(
            f"{job['optimizer']}, {job['side']}: {changed.sum()} of {changed.size} rows of a batch "
            "changed to finite numbers; so its speed means nothing"
        )


class _SquaredError(NamedTuple):
    """A model (`models.base.Model`): the mean squared error of the vectors of the ids."""

    target_ND: tf.Tensor

    def lookups(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Return the data of the batch, which are the ids of `table`."""
        return {"table": batch.data}

    def loss(self, batch: Batch, rows: dict[str, Rows]) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the mean squared error, with 1 for the number of examples."""
        vectors_ND = take(rows["table"], tf.float32)
        return tf.reduce_mean(tf.square(vectors_ND - self.target_ND)), tf.constant(1.0)


def _table(optimizer: str, case: Case) -> Side:
    """Return the side of the trainer's step on a table of Lexrow."""
    rule = OPTIMIZERS[optimizer](OptimizerConfig())
    columns = case.target_BTD.shape[-1]
    table = DeviceTable(case.rows, columns, _initial(case), slots=rule.slots)
    model = _SquaredError(_target(case))

    @tf.function(autograph=False)
    def train(ids_BT: tf.Tensor, rate: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """Make one step, and return its loss before the update."""
        return train_step(model, {"table": table}, rule, [Batch(ids_BT, None)], rate, number)[0]

    return Side(_loop(train, case), table.gather, table.bytes)


def _plain(optimizer: str, case: Case, make: Callable[..., sparse_by_hand.Step]) -> Side:
    """Return a side in plain TensorFlow; `make` is called as `sparse_by_hand.step`."""
    dim = case.target_BTD.shape[-1]
    formula = sparse_by_hand.FORMULAS[optimizer]
    initial = _initial(case)
    values = tf.Variable(lambda: initial((case.rows, dim)), trainable=False)
    slots = [sparse_by_hand.filled((case.rows, width or dim), v) for width, v in formula.slots]
    train = make(values, slots, formula, _target(case))
    return Side(
        _loop(train, case), lambda ids: tf.gather(values, ids), lambda: _bytes([values, *slots])
    )


SIDES: dict[str, Callable[[str, Case], Side]] = {
    "table": _table,
    "fit": lambda optimizer, case: _in_fit(RowEmbedding, IN_FIT[optimizer](RATE), case),
    "hand": functools.partial(_plain, make=sparse_by_hand.step),
    "keras": lambda optimizer, case: _in_fit(
        keras.layers.Embedding, IN_KERAS[optimizer](RATE), case
    ),
    "keras_jit": lambda optimizer, case: _in_fit(
        keras.layers.Embedding, IN_KERAS[optimizer](RATE), case, jit_compile=True
    ),
    "dense": functools.partial(_plain, make=sparse_by_hand.dense_step),
}
IN_FIT: dict[str, Callable[[float], keras.Optimizer]] = {
    "sgd": SGD,
    "momentum": functools.partial(SGD, momentum=0.9),
    "adagrad": Adagrad,
    "rowwise_adagrad": RowwiseAdagrad,
    "lazy_adam": LazyAdam,
    "lazy_adamw": LazyAdamW,
}
IN_KERAS: dict[str, Callable[[float], keras.Optimizer]] = {
    "sgd": keras.optimizers.SGD,
    "momentum": functools.partial(keras.optimizers.SGD, momentum=0.9),
    "adagrad": keras.optimizers.Adagrad,
    "ftrl": keras.optimizers.Ftrl,
    "lazy_adam": keras.optimizers.Adam,
    "lazy_adamw": keras.optimizers.AdamW,
}


def _target(case: Case) -> tf.Tensor:
    """Return the target on the device, (N, D)."""
    return tf.reshape(tf.constant(case.target_BTD), [-1, case.target_BTD.shape[-1]])


def _initial(case: Case) -> Callable[[tuple[int, int]], tf.Tensor]:
    """Return a function from a shape to the case's initial values, without temporary copies."""
    return lambda shape: compute_in_graph(lambda: case.initial(shape))


def _bytes(variables: Sequence[Any]) -> int:
    """Return the bytes of variables of TensorFlow or Keras."""
    return sum(int(np.prod(v.shape)) * tf.as_dtype(v.dtype).size for v in variables)


def _loop(train: sparse_by_hand.Step, case: Case) -> Callable[[int, int], list[float]]:
    """Return a function for `Side.blocks` that calls `train` for each step.

    Batches of ids are used in turn, over all blocks. A block waits for the device at its end only.
    """
    pool = [tf.constant(ids_BT) for ids_BT in case.ids_SBT]
    rate = tf.constant(RATE)
    done = 0

    def blocks(steps: int, count: int) -> list[float]:
        """Train `count` blocks of `steps` steps, and return the seconds of each block."""
        nonlocal done
        seconds = []
        for _ in range(count):
            start = time.perf_counter()
            for _ in range(steps):
                loss = train(pool[done % len(pool)], rate, tf.constant(done + 1, tf.int64))
                done += 1
            loss.numpy()  # waits for the device
            seconds.append(time.perf_counter() - start)
        return seconds

    return blocks


def _in_fit(
    embedding: type[keras.layers.Embedding],
    optimizer: keras.Optimizer,
    case: Case,
    jit_compile: bool | str = "auto",
) -> Side:
    """Return a side in keras.fit with its usual progress bar; a block is an epoch."""
    layer = embedding(case.rows, case.target_BTD.shape[-1], embeddings_initializer=case.initial)
    model = keras.Sequential([keras.Input(case.ids_SBT.shape[2:], dtype="int32"), layer])
    model.compile(optimizer, loss="mse", jit_compile=jit_compile)
    target_BTD = tf.constant(case.target_BTD)
    batches = (
        tf.data.Dataset.from_tensor_slices(case.ids_SBT)
        .map(lambda ids_BT: (ids_BT, target_BTD))
        .repeat()
        .prefetch(tf.data.AUTOTUNE)
    )

    def blocks(steps: int, count: int) -> list[float]:
        """Train `count` epochs of `steps` steps, and return the seconds of each epoch."""
        return fit_seconds(model, batches, count, steps)

    def gather(ids: tf.Tensor) -> tf.Tensor:
        """Return the rows of the ids."""
        values = layer.embeddings.value
        return tf.raw_ops.ResourceGather(resource=values.handle, indices=ids, dtype=tf.float32)

    return Side(blocks, gather, lambda: _bytes([layer.embeddings, *optimizer.variables]))


if __name__ == "__main__":
    programs.answer(measure, (tf.errors.ResourceExhaustedError,))
