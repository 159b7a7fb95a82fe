"""Run one side of the classifier of the benchmark `pipeline`: python -m MODULE JOB

An embedding of 1,000 x 100, the mean over 20 tokens, a sigmoid; Adam, binary cross-entropy.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from ...config import RunConfig
from ...optimizers.adam import lazy_adam
from ...system import devices
from ...tables.base import TableSpec
from ...tables.device import DeviceTable
from ...tables.row_reads import take
from ...training.step import train_function
from ...types import Batch, Rows
from . import pipeline_examples as pipelines
from .pipeline_examples import BATCH, VOCABULARY, WORDS, Examples

DIM = 100
# The default of keras.optimizers.Adam.
RATE = 0.001
# As the trainer's --steps_per_call.
_STEPS = 16
_WAITING_EPOCHS = 2


class Trained(NamedTuple):
    """A side when it has trained.

    seconds: of each epoch. waiting: share of the time in which the next batch was waited for.
    vectors_VD, weights_D, bias: the classifier.
    """

    seconds: list[float]
    waiting: float
    vectors_VD: np.ndarray
    weights_D: np.ndarray
    bias: float


def main(job: dict[str, Any]) -> None:
    """Trains, and writes what it measured.

    job: `side`, `examples` and `epochs` (how many), `seed`, and `result` (JSON, to write):
    `examples_per_second` (the median over epochs but the first), `first_seconds` (the first epoch,
    with its tracing), `epoch_seconds`, `waiting` (a share), and `accuracy` (of the classifier in
    the end, on the examples that it was trained on).
    """
    examples = pipelines.make(job["examples"], job["seed"])
    trained = SIDES[job["side"]](examples, job["epochs"], job["seed"])
    first, *others = trained.seconds
    values = {
        "examples_per_second": job["examples"] / statistics.median(others),
        "first_seconds": first,
        "epoch_seconds": others,
        "waiting": trained.waiting,
        "accuracy": accuracy(trained, examples),
    }
    Path(job["result"]).write_text(json.dumps(values), encoding="utf-8")


def accuracy(trained: Trained, examples: Examples) -> float:
    """The share of the examples that get their label."""
    mean_ND = trained.vectors_VD[examples.ids_NT].mean(axis=1)
    scores_N = mean_ND @ trained.weights_D + trained.bias
    return float(np.mean((scores_N > 0) == examples.labels_N))


def _initial(seed: int) -> tuple[keras.Initializer, keras.Initializer]:
    """Of the vectors and of the weights: what Keras' layers draw from, the same for every side."""
    return (
        keras.initializers.RandomUniform(-0.05, 0.05, seed=seed),
        keras.initializers.GlorotUniform(seed=seed),
    )


class Bag(NamedTuple):
    """The classifier as a model of ours (`models.base.Model`).

    A batch is (B, 1 + 20): a label, -1 where there is no example, and ids.
    """

    seed: int

    def tables(self) -> dict[str, TableSpec]:
        """`vectors`, a row a word; `head`, one row of weights and bias."""
        uniform, glorot = _initial(self.seed)

        def head(shape: tuple[int, int]) -> tf.Tensor:
            return tf.concat([tf.transpose(glorot((DIM, 1))), tf.zeros((1, 1))], axis=1)

        return {
            "vectors": TableSpec(VOCABULARY, DIM, uniform),
            "head": TableSpec(1, DIM + 1, head),
        }

    def lookups(self, batch: Batch) -> dict[str, tf.Tensor]:
        """The words; the one row of the head."""
        return {"vectors": batch.data[:, 1:], "head": tf.zeros(1, tf.int32)}

    def loss(self, batch: Batch, rows: dict[str, Rows]) -> tuple[tf.Tensor, tf.Tensor]:
        """The mean over the batch, as Keras has it."""
        labels_B = tf.cast(batch.data[:, 0], tf.float32)
        real_B = tf.cast(labels_B >= 0, tf.float32)
        words_BTD = tf.reshape(take(rows["vectors"], tf.float32), (-1, WORDS, DIM))
        head_1E = rows["head"].values_UD
        weights_D1, bias = tf.transpose(head_1E[:, :DIM]), head_1E[0, DIM]
        scores_B = tf.matmul(tf.reduce_mean(words_BTD, axis=1), weights_D1)[:, 0] + bias
        losses_B = tf.nn.sigmoid_cross_entropy_with_logits(labels_B, scores_B)
        count = tf.reduce_sum(real_B)
        return tf.math.divide_no_nan(tf.reduce_sum(real_B * losses_B), count), tf.constant(1.0)


def _ours(examples: Examples, epochs: int, seed: int) -> Trained:
    """The trainer's compiled steps, 16 a call, on tables of ours with lazy Adam.

    Of what a user of ours can choose today this is the fastest. Measured for it, two cores, before
    anything else was: a step a call 40 thousand examples/s, 16 steps a call 78, and with the
    threads that the trainer sets 147.
    """
    devices.use_machine(RunConfig())
    model = Bag(seed)
    tables = {
        name: DeviceTable(spec.rows, spec.columns, spec.initial)
        for name, spec in model.tables().items()
    }
    train = train_function(model, tables, lazy_adam(), seed)
    calls = math.ceil(len(examples.texts) / (_STEPS * BATCH))
    rate = tf.constant(RATE)
    seconds, waited = [], []
    batches = iter(pipelines.ours(examples, epochs, _STEPS, seed))
    for epoch in range(epochs):
        began, waiting = time.perf_counter(), 0.0
        for call in range(calls):
            asked = time.perf_counter()
            rows_SBL = next(batches)
            waiting += time.perf_counter() - asked
            loss, _ = train(rows_SBL, tf.constant((epoch * calls + call) * _STEPS, tf.int64), rate)
        loss.numpy()  # waits for the device
        seconds.append(time.perf_counter() - began)
        waited.append(waiting)
    head_E = tables["head"].values.numpy()[0]
    vectors_VD = tables["vectors"].values.numpy()
    share = sum(waited[1:]) / sum(seconds[1:])
    return Trained(seconds, share, vectors_VD, head_E[:DIM], head_E[DIM])


def _in_fit(make: Callable[[Examples], tf.data.Dataset]) -> Callable[..., Trained]:
    """A side that trains by keras.fit."""

    def side(examples: Examples, epochs: int, seed: int) -> Trained:
        uniform, glorot = _initial(seed)
        model = keras.Sequential(
            [
                keras.Input((WORDS,), dtype="int32"),
                keras.layers.Embedding(VOCABULARY, DIM, uniform),
                keras.layers.GlobalAveragePooling1D(),
                keras.layers.Dense(1, activation="sigmoid", kernel_initializer=glorot),
            ]
        )
        model.compile(keras.optimizers.Adam(RATE), "binary_crossentropy", metrics=["accuracy"])
        batches = make(examples)
        seconds = _fit(model, batches, epochs)
        vectors_VD, weights_D1, bias = model.get_weights()
        waiting = _waiting(model, batches)
        return Trained(seconds, waiting, vectors_VD, weights_D1[:, 0], float(bias[0]))

    return side


def _fit(model: keras.Model, batches: tf.data.Dataset, epochs: int) -> list[float]:
    """Trains as people do, progress bar included; the seconds of each epoch."""
    ends: list[float] = []

    def mark(*_: Any) -> None:
        ends.append(time.perf_counter())

    clock = keras.callbacks.LambdaCallback(on_train_begin=mark, on_epoch_end=mark)
    model.fit(batches, epochs=epochs, callbacks=[clock], shuffle=False)  # a dataset does that
    return np.diff(ends).tolist()


def _waiting(model: keras.Model, batches: tf.data.Dataset) -> float:
    """The share of the time of keras.fit, in more epochs, in which it waits for a batch.

    fit asks for a batch within its compiled step, where no clock is. So the step is given a batch
    from outside, as fit does where batches do not come from tf.data; the rest of fit stays.
    """
    step = model.train_function
    waited = 0.0

    def asking(iterator: Iterator[Any]) -> Any:
        nonlocal waited
        began = time.perf_counter()
        batch = next(iterator)  # StopIteration ends the epoch, as fit expects
        waited += time.perf_counter() - began
        return step([batch])

    model.train_function = asking
    _fit(model, batches, 1)  # traces the step anew
    waited = 0.0
    seconds = sum(_fit(model, batches, _WAITING_EPOCHS))
    return waited / seconds


SIDES = {
    "naive": _in_fit(pipelines.naive),
    "prefetch": _in_fit(pipelines.prefetched),
    "parallel": _in_fit(pipelines.parallel),
    "ours": _ours,
}


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
