"""What the models of words share: their two tables, and their streams of random numbers."""

from __future__ import annotations

import tensorflow as tf

from app.models.base import TableSpec
from app.tables.variable import drawn
from app.types import Batch

# Each kind of draw has its own stream, so that adding one leaves the others as they were.
_STREAMS = {"window": 1, "negatives": 2, "initial": 3}


def seed_of(batch: Batch, stream: str) -> tf.Tensor:
    """The seed, (2,) int64, of one kind of draw in a step."""
    return batch.seed + tf.constant([_STREAMS[stream] << 40, 0], tf.int64)


def word_tables(size: int, dim: int, seed: int) -> dict[str, TableSpec]:
    """`input`, whose rows are the vectors in the end, and `output`.

    As word2vec.c starts: U(-0.5, 0.5) / D for the one, 0 for the other.
    """

    def uniform(shape: tuple[int, int]) -> tf.Tensor:
        limit = 0.5 / dim
        seeds = [_STREAMS["initial"] << 40, seed]
        return drawn(lambda: tf.random.stateless_uniform(shape, seeds, -limit, limit))

    return {"input": TableSpec(size, dim, uniform), "output": TableSpec(size, dim, tf.zeros)}
