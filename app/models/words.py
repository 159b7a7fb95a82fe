"""What the models of words share: the table of their vectors, and their streams of randomness."""

from __future__ import annotations

import tensorflow as tf

from ..losses.base import Loss, Predictions
from ..tables.base import TableSpec
from ..tables.initial import Uniform
from ..types import HOST, Batch, Rows
from .base import Outcome

# Each kind of draw has its own stream, so that adding one leaves the others as they were.
_STREAMS = {
    "window": 1,
    "negatives": 2,
    "initial": 3,
    "kernel": 4,
    "recurrent": 5,
    "users": 6,
    "items": 7,
}


def draw_seed(batch: Batch, stream: str) -> tf.Tensor:
    """The seed, (2,) int64, of one kind of draw in a step."""
    with tf.device(HOST):
        return batch.seed + tf.constant([_STREAMS[stream] << 40, 0], tf.int64)


def input_table(size: int, dim: int, seed: int) -> TableSpec:
    """The table whose rows are the vectors in the end: U(-0.5, 0.5) / D at first (word2vec.c)."""

    initial = Uniform(0.5 / dim, initial_seed("initial", seed))
    return TableSpec(size, dim, initial, by_frequency=True)


def initial_seed(stream: str, seed: int) -> int:
    """The seed of the initial values of one table in a run with this seed, below 2^31."""
    return (_STREAMS[stream] << 40) + seed


def loss_outcome(
    loss: Loss, predictions: Predictions, rows: dict[str, Rows], examples: tf.Tensor
) -> Outcome:
    """What predictions give under a loss."""
    total, parts = loss.loss(predictions, rows)
    return Outcome(tf.convert_to_tensor(total, tf.float32), examples, parts)
