"""The random seeds of a run: one stream of random numbers for each kind of draw."""

from __future__ import annotations

import tensorflow as tf

from ..types import HOST, Batch

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


def initial_seed(stream: str, seed: int) -> int:
    """Return the seed of the initial values of one kind of table.

    Args:
        stream: The kind of table, a key of `_STREAMS`.
        seed: The seed of the run, below 2^31.
    """
    return (_STREAMS[stream] << 40) + seed
