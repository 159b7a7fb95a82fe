"""Run one side of the classifier of the benchmark `pipeline`, as a program of its own.

An embedding of 1,000 x 100, the mean over 20 tokens, a sigmoid; Adam, binary cross-entropy.
"""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from ...build import threads
from ...config import RunConfig
from ...optimizers.adam import lazy_adam
from ...tables.base import TableSpec
from ...tables.row_reads import take
from ...training.step import train_function
from ...types import Batch, Rows
from ..harness import programs
from ..harness.measured_steps import fit_seconds, make_tables
from . import pipeline_examples
from .pipeline_examples import BATCH, VOCABULARY, WORDS, Examples

DIM = 100
# The default of keras.optimizers.Adam.
RATE = 0.001
# The default of --steps_per_call.
_STEPS = 16
_WAITING_EPOCHS = 2


class Trained(NamedTuple):
    """A trained classifier, and the times of its training.

    Attributes:
        seconds: The seconds of each epoch, the first one with the tracing.
        waiting: The share of the time, after the first epoch, in which steps waited for a batch.
        vectors_VD: The embedding.
        weights_D: The weights of the classifier.
        bias: Its bias.
    """

    seconds: list[float]
    waiting: float
    vectors_VD: np.ndarray
    weights_D: np.ndarray
    bias: float


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Train the classifier by one side, and measure its speed and waiting.

    Args:
        job: `side`, `examples` and `epochs` (their numbers; two epochs or more) and `seed`.

    Returns:
        `examples_per_second` (the median over epochs without the first), `first_seconds` (the first
        epoch, with its tracing), `epoch_seconds`, `waiting` (a share) and `accuracy` (of the final
        classifier on the examples that it was trained on).
    """
    examples = pipeline_examples.make(job["examples"], job["seed"])
    trained = SIDES[job["side"]](examples, job["epochs"], job["seed"])
    first, *others = trained.seconds
    return {
        "examples_per_second": job["examples"] / statistics.median(others),
        "first_seconds": first,
        "epoch_seconds": others,
        "waiting": trained.waiting,
        "accuracy": accuracy(trained, examples),
    }


def accuracy(trained: Trained, examples: Examples) -> float:
    """Return the share of examples whose label the classifier predicts.

    Args:
        trained: The classifier.
        examples: The examples.
    """
    mean_ND = trained.vectors_VD[examples.ids_NT].mean(axis=1)
    scores_N = mean_ND @ trained.weights_D + trained.bias
    return float(np.mean((scores_N > 0) == examples.labels_N))


def _initial(seed: int) -> tuple[keras.Initializer, keras.Initializer]:
    """Return the default initializers of Keras for the embedding and the weights, with a seed."""
    return (
        keras.initializers.RandomUniform(-0.05, 0.05, seed=seed),
        keras.initializers.GlorotUniform(seed=seed),
    )


class Bag(NamedTuple):
    """The classifier as a model of Lexrow (`models.base.Model`).

    A batch is (B, 1 + 20): a label, or -1 without an example, and ids.

    Attributes:
        seed: The seed of the initial values.
    """

    seed: int

    def tables(self) -> dict[str, TableSpec]:
        """Return `vectors`, a row for each word, and `head`, one row of weights and bias."""
        uniform, glorot = _initial(self.seed)

        def head(shape: tuple[int, int]) -> tf.Tensor:
            """Return the initial row of the head, (1, D + 1): random weights, then a bias of 0."""
            return tf.concat([tf.transpose(glorot((DIM, 1))), tf.zeros((1, 1))], axis=1)

        return {"vectors": TableSpec(VOCABULARY, DIM, uniform), "head": TableSpec(1, DIM + 1, head)}

    def lookups(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Return the ids (B, 20) of the words, and the id 0 of the only row of the head."""
        return {"vectors": batch.data[:, 1:], "head": tf.zeros(1, tf.int32)}

    def loss(self, batch: Batch, rows: dict[str, Rows]) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the mean loss of the batch, as in Keras, with 1 for the number of examples.

        Rows with the label -1 do not count. Without any other the loss is 0.
        """
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
    """Train by the trainer's compiled steps, 16 in a call, on tables with lazy Adam.

    This is the fastest choice of Lexrow. On two cores, one step in a call made 40,000 examples/s,
    16 steps 78,000, and with the trainer's threads 147,000.
    """
    threads.use_machine(RunConfig())
    model = Bag(seed)
    tables = make_tables(model, lazy_adam())
    train = train_function(model, tables, lazy_adam(), seed)
    calls = math.ceil(len(examples.texts) / (_STEPS * BATCH))
    rate = tf.constant(RATE)
    seconds, waited = [], []
    batches = iter(pipeline_examples.ours(examples, epochs, _STEPS, seed))
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


def _in_fit(
    examples: Examples, epochs: int, seed: int, make: Callable[[Examples], tf.data.Dataset]
) -> Trained:
    """Train the classifier of Keras by keras.fit on the batches of `make`.

    The waiting is measured in three further epochs, after the trained weights are read.
    """
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
    seconds = fit_seconds(model, batches, epochs)
    vectors_VD, weights_D1, bias = model.get_weights()
    return Trained(seconds, _waiting(model, batches), vectors_VD, weights_D1[:, 0], float(bias[0]))


def _waiting(model: keras.Model, batches: tf.data.Dataset) -> float:
    """Train 3 more epochs; return the share of the last 2 in which fit waits for a batch.

    It replaces `model.train_function`, as no clock can be read within the compiled step, where fit
    gets a batch. Here a batch is passed to the step, as fit does with batches that do not come from
    tf.data. The rest of fit is the same.
    """
    step = model.train_function
    waited = 0.0

    def timed_step(iterator: Iterator[Any]) -> Any:
        """Get a batch, add the seconds of that to `waited`, and run the step on the batch."""
        nonlocal waited
        began = time.perf_counter()
        batch = next(iterator)  # StopIteration ends the epoch of fit
        waited += time.perf_counter() - began
        return step([batch])

    model.train_function = timed_step
    fit_seconds(model, batches, 1)  # traces the step again
    waited = 0.0
    seconds = sum(fit_seconds(model, batches, _WAITING_EPOCHS))
    return waited / seconds


SIDES: dict[str, Callable[[Examples, int, int], Trained]] = {
    "naive": functools.partial(_in_fit, make=pipeline_examples.naive),
    "prefetch": functools.partial(_in_fit, make=pipeline_examples.prefetched),
    "parallel": functools.partial(_in_fit, make=pipeline_examples.parallel),
    "ours": _ours,
}


if __name__ == "__main__":
    programs.answer(measure)
