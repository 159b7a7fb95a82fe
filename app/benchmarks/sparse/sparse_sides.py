"""Run one side of the benchmark `sparse`: python -m MODULE JOB

A step looks up the vectors of 128 x 20 ids and brings them nearer to a target (mean squared
error). Ids differ from step to step; initial rows, ids and target are the same for every side.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from ... import keras as ours
from ...errors import RunError
from ...optimizers import adagrad, adam, ftrl, sgd
from ...tables.device import DeviceTable
from ...tables.row_reads import take
from ...tables.variable import compute_in_graph
from ...training.step import train_step
from ...types import Batch, Rows
from . import sparse_by_hand

# The batch of keras issue 4365.
BATCH = (128, 20)
# The speed of no side depends on it.
RATE = 0.01

# Batches of ids, which are gone through again and again: so many that the rows of one have left
# the processor's caches before it comes again.
_POOL = 256
_BLOCKS = 5
# A slow side makes fewer steps a block than it is asked for, so that a block takes about so long.
_BLOCK_SECONDS = 3.0
_FEWEST_STEPS = 3


class Side(NamedTuple):
    """blocks: from steps and a number of blocks to the seconds that each block of steps took.

    gather: ids to rows. bytes: of the table and its slots, once a step was made.
    """

    blocks: Callable[[int, int], list[float]]
    gather: Callable[[tf.Tensor], tf.Tensor]
    bytes: Callable[[], int]


class Case(NamedTuple):
    """What every side gets. ids_SBT: int32, S batches. target_BTD: float32."""

    rows: int
    ids_SBT: np.ndarray
    target_BTD: np.ndarray
    initial: keras.initializers.Initializer


def main(job: dict[str, Any]) -> None:
    """Measures, and writes what it measured.

    job: `side`, `optimizer`, `rows`, `dim`, `steps` (of a block, at most), `seed`, and `result`
    (JSON, to write): `step_ms` (the median over blocks), `blocks_ms`, `block_steps`, `table_bytes`
    (of table and slots) and `device_peak_bytes` (of a GPU, else None); or `left_out`, the reason,
    where the memory of the device does not suffice.
    """
    try:
        values = _measured(job)
    except tf.errors.ResourceExhaustedError:
        values = {"left_out": "the memory of the device does not suffice"}
    Path(job["result"]).write_text(json.dumps(values), encoding="utf-8")


def _measured(job: dict[str, Any]) -> dict[str, Any]:
    case = make_case(job["rows"], job["dim"], job["seed"])
    side = SIDES[job["side"]](job["optimizer"], case)
    before = side.gather(case.ids_SBT[0]).numpy()
    # The first block compiles and touches memory for the first time; the second tells how long
    # steps take.
    guess = side.blocks(_FEWEST_STEPS, 2)[-1] / _FEWEST_STEPS
    steps = min(job["steps"], max(_FEWEST_STEPS, round(_BLOCK_SECONDS / guess)))
    _, *blocks = side.blocks(steps, 1 + _BLOCKS)
    _check(job, before, side.gather(case.ids_SBT[0]).numpy())
    blocks_ms = [1000 * seconds / steps for seconds in blocks]
    device = tf.config.list_logical_devices("GPU")
    return {
        "step_ms": statistics.median(blocks_ms),
        "blocks_ms": blocks_ms,
        "block_steps": steps,
        "table_bytes": side.bytes(),
        "device_peak_bytes": (
            tf.config.experimental.get_memory_info("GPU:0")["peak"] if device else None
        ),
    }


def make_case(rows: int, dim: int, seed: int) -> Case:
    """Uniform ids and target (as in the issue); rows as keras.layers.Embedding draws them."""
    random = np.random.default_rng(seed)
    return Case(
        rows=rows,
        ids_SBT=random.integers(0, rows, (_POOL, *BATCH), dtype=np.int32),
        target_BTD=random.random((*BATCH, dim), dtype=np.float32),
        initial=keras.initializers.RandomUniform(-0.05, 0.05, seed=seed),
    )


def _check(job: dict[str, Any], before: np.ndarray, after: np.ndarray) -> None:
    """RunError when the side did not train, for then its speed means nothing."""
    changed = (before != after).any(axis=-1)
    if not (changed.all() and np.isfinite(after).all()):
        raise RunError(
            f"{job['optimizer']}, {job['side']}: {changed.sum()} of {changed.size} rows of a batch "
            "changed, or not to finite numbers; so its speed means nothing"
        )


class _SquaredError(NamedTuple):
    """A model (`models.base.Model`) whose loss is the mean squared error of looked-up vectors."""

    target_ND: tf.Tensor

    def lookups(self, batch: Batch) -> dict[str, tf.Tensor]:
        return {"table": batch.data}

    def loss(self, batch: Batch, rows: dict[str, Rows]) -> tuple[tf.Tensor, tf.Tensor]:
        vectors_ND = take(rows["table"], tf.float32)
        return tf.reduce_mean(tf.square(vectors_ND - self.target_ND)), tf.constant(1.0)


def _table(optimizer: str, case: Case) -> Side:
    """Ours, without Keras: the trainer's step on a table."""
    table = DeviceTable(case.rows, case.target_BTD.shape[-1], _initial(case))
    model = _SquaredError(_target(case))
    rule = ON_TABLES[optimizer]()

    @tf.function(autograph=False)
    def train(ids_BT: tf.Tensor, rate: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        return train_step(model, {"table": table}, rule, [Batch(ids_BT, None)], rate, number)[0]

    return Side(_loop(train, case), table.gather, table.bytes)


def _hand(optimizer: str, case: Case) -> Side:
    dim = case.target_BTD.shape[-1]
    formula = sparse_by_hand.FORMULAS[optimizer]
    initial = _initial(case)
    values = tf.Variable(lambda: initial((case.rows, dim)), trainable=False)
    slots = sparse_by_hand.make_slots(formula, case.rows, dim)
    train = sparse_by_hand.step(values, slots, formula, _target(case))
    return Side(
        _loop(train, case), lambda ids: tf.gather(values, ids), lambda: _bytes([values, *slots])
    )


def _fit(optimizer: str, case: Case) -> Side:
    """Ours in keras.fit."""
    return _in_fit(ours.RowEmbedding, IN_FIT[optimizer](), case)


def _keras(optimizer: str, case: Case) -> Side:
    return _in_fit(keras.layers.Embedding, IN_KERAS[optimizer](), case)


def _keras_jit(optimizer: str, case: Case) -> Side:
    return _in_fit(keras.layers.Embedding, IN_KERAS[optimizer](), case, jit_compile=True)


SIDES = {"table": _table, "fit": _fit, "hand": _hand, "keras": _keras, "keras_jit": _keras_jit}
ON_TABLES = {
    "sgd": sgd.sgd,
    "momentum": sgd.momentum,
    "adagrad": adagrad.adagrad,
    "rowwise_adagrad": adagrad.rowwise_adagrad,
    "ftrl": ftrl.ftrl,
    "lazy_adam": adam.lazy_adam,
    "lazy_adamw": adam.lazy_adamw,
}
IN_FIT = {
    "sgd": lambda: ours.SGD(RATE),
    "momentum": lambda: ours.SGD(RATE, momentum=0.9),
    "adagrad": lambda: ours.Adagrad(RATE),
    "rowwise_adagrad": lambda: ours.RowwiseAdagrad(RATE),
    "lazy_adam": lambda: ours.LazyAdam(RATE),
    "lazy_adamw": lambda: ours.LazyAdamW(RATE),
}
IN_KERAS = {
    "sgd": lambda: keras.optimizers.SGD(RATE),
    "momentum": lambda: keras.optimizers.SGD(RATE, momentum=0.9),
    "adagrad": lambda: keras.optimizers.Adagrad(RATE),
    "ftrl": lambda: keras.optimizers.Ftrl(RATE),
    "lazy_adam": lambda: keras.optimizers.Adam(RATE),
    "lazy_adamw": lambda: keras.optimizers.AdamW(RATE),
}


def _target(case: Case) -> tf.Tensor:
    """(N, D), on the device."""
    return tf.reshape(tf.constant(case.target_BTD), [-1, case.target_BTD.shape[-1]])


def _initial(case: Case) -> Callable[[tuple[int, int]], tf.Tensor]:
    """From a shape to the initial rows, without temporary copies of them."""
    return lambda shape: compute_in_graph(lambda: case.initial(shape))


def _bytes(variables: Sequence[Any]) -> int:
    """Of variables of TensorFlow or Keras."""
    return sum(int(np.prod(v.shape)) * tf.as_dtype(v.dtype).size for v in variables)


def _loop(train: sparse_by_hand.Step, case: Case) -> Callable[[int, int], list[float]]:
    """Blocks of one call of `train` a step."""
    pool = [tf.constant(ids_BT) for ids_BT in case.ids_SBT]
    rate = tf.constant(RATE)
    done = 0

    def blocks(steps: int, count: int) -> list[float]:
        nonlocal done
        seconds = []
        for _ in range(count):
            start = time.perf_counter()
            for _ in range(steps):
                loss = train(pool[done % len(pool)], rate, tf.constant(done + 1, tf.int64))
                done += 1
            loss.numpy()  # Waits for the device.
            seconds.append(time.perf_counter() - start)
        return seconds

    return blocks


class _Clock(keras.callbacks.Callback):
    """Seconds from the end of one epoch, or the start of training, to the end of the next."""

    def on_train_begin(self, logs=None):
        self.seconds, self._last = [], time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        now = time.perf_counter()
        self.seconds.append(now - self._last)
        self._last = now


def _in_fit(
    embedding: type[keras.layers.Embedding],
    optimizer: keras.Optimizer,
    case: Case,
    jit_compile: bool | str = "auto",
) -> Side:
    """Blocks are epochs of keras.fit, which shows its progress as by default."""
    layer = embedding(case.rows, case.target_BTD.shape[-1], embeddings_initializer=case.initial)
    model = keras.Sequential([keras.Input(BATCH[1:], dtype="int32"), layer])
    model.compile(optimizer, loss="mse", jit_compile=jit_compile)
    target_BTD = tf.constant(case.target_BTD)
    batches = (
        tf.data.Dataset.from_tensor_slices(case.ids_SBT)
        .map(lambda ids_BT: (ids_BT, target_BTD))
        .repeat()
        .prefetch(tf.data.AUTOTUNE)
    )

    def blocks(steps: int, count: int) -> list[float]:
        clock = _Clock()
        model.fit(
            batches, epochs=count, steps_per_epoch=steps, callbacks=[clock], shuffle=False
        )  # a dataset is shuffled by itself
        return clock.seconds

    def gather(ids: tf.Tensor) -> tf.Tensor:
        values = layer.embeddings.value
        return tf.raw_ops.ResourceGather(resource=values.handle, indices=ids, dtype=tf.float32)

    return Side(blocks, gather, lambda: _bytes([layer.embeddings, *optimizer.variables]))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
