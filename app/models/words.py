"""The table of word vectors, the random seeds, and the outcome, as models share them."""

from __future__ import annotations

import tensorflow as tf

from ..losses.base import Loss, Predictions
from ..tables.base import TableSpec
from ..tables.initial import Uniform
from ..types import HOST, Batch, Rows
from .base import Outcome

# Each kind of draw has its own stream of random numbers, so that a new kind changes no other.
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
    """Return the seed of one kind of random draw in a step, (2,) int64.

    Args:
        batch: The batch, which has the seed of the step.
        stream: The kind of draw, a key of `_STREAMS`.
    """
    with tf.device(HOST):
        return batch.seed + tf.constant([_STREAMS[stream] << 40, 0], tf.int64)


def input_table(size: int, dim: int, seed: int) -> TableSpec:
    """Return the spec of the table of word vectors: uniform at first, -0.5 / D to 0.5 / D.

    These are the initial values of word2vec.c.

    Args:
        size: The number of words, V.
        dim: The columns of a vector, D.
        seed: The seed of the run.
    """
    initial = Uniform(0.5 / dim, initial_seed("initial", seed))
    return TableSpec(size, dim, initial, by_frequency=True)


def initial_seed(stream: str, seed: int) -> int:
    """Return the seed of the initial values of one kind of table.

    Args:
        stream: The kind of table, a key of `_STREAMS`.
        seed: The seed of the run, below 2^31.
    """
    return (_STREAMS[stream] << 40) + seed


def loss_outcome(
    loss: Loss, predictions: Predictions, rows: dict[str, Rows], examples: tf.Tensor
) -> Outcome:
    """Apply a loss to predictions, and return the outcome of the batch, without new states.

    Args:
        loss: The loss.
        predictions: Hidden vectors, words and weights.
        rows: The rows of the loss's lookups, by name of the table.
        examples: The number of examples, a float32 scalar.
    """
    total, parts = loss.loss(predictions, rows)
    return Outcome(tf.convert_to_tensor(total, tf.float32), examples, parts)
