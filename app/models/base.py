"""The interface of a model, and its random seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import tensorflow as tf

from ..losses.base import Loss, Part, Predictions
from ..tables.base import TableSpec
from ..types import HOST, Batch, Rows, UniqueIds


class Outcome(NamedTuple):
    """The loss of a batch.

    Attributes:
        total: The loss of the rows that were looked up, summed over examples, a float32 scalar.
        examples: The number of examples, or the sum of their weights, a float32 scalar.
        parts: Losses of rows that are streamed (see `losses.base.Part`), to be added to `total`.
        state: New rows (U, D) for tables that are not trained, by name of the table. They replace
            the rows that were looked up.
    """

    total: tf.Tensor
    examples: tf.Tensor
    parts: Sequence[Part] = ()
    state: Mapping[str, tf.Tensor] = {}


class Model(Protocol):
    """Something to train, in terms of named tables that it never sees.

    A training step gathers the rows of `lookups`, differentiates `loss` by these rows, and lets an
    optimizer update them.
    """

    @property
    def dtype(self) -> tf.DType:
        """The dtype of the matrix products."""

    def tables(self) -> dict[str, TableSpec]:
        """Return the specs of the tables of the model and of its loss, by name."""

    def lookups(self, batch: Batch) -> dict[str, tf.Tensor | UniqueIds | list[tf.Tensor]]:
        """Return the ids that the batch needs, by name of the table.

        Args:
            batch: The data of one step, or of one micro-batch of it, as it is or prepared.

        Returns:
            Integer ids of any shape, N in all; an id may occur several times. `UniqueIds` where the
            input pipeline has found the unique ids. A list of partitions that have no id in common,
            or `UniqueIds` in partitions: the rows of the partitions are read, differentiated and
            updated side by side, on several cores.
        """

    def loss(self, batch: Batch, rows: dict[str, Rows]) -> Outcome | tuple[tf.Tensor, tf.Tensor]:
        """Return the loss of a batch.

        Args:
            batch: The batch that `lookups` was called with.
            rows: The unique rows of each lookup, and the index of each id's row among them, by
                name of the table. For ids in partitions these are `Rows.partitions`, or all ids
                are one lookup, in which those of the first partition are first.

        Returns:
            An `Outcome`, or a tuple of only its first two fields, total and examples.
        """


@runtime_checkable
class Preparable(Protocol):
    """A model that computes a part of its loss from the data alone.

    A program for a GPU does that for all steps of a call at once.
    """

    def prepare(self, batch: Batch) -> Batch:
        """Return the batch with its data prepared; otherwise `lookups` and `loss` do it."""


@runtime_checkable
class Padded(Protocol):
    """A model that pads what it looks up under XLA, so that any batch fits.

    A call whose batches all fit smaller paddings takes less time with these.
    """

    def for_usual_batches(self) -> Model | None:
        """Return the model with paddings that are enough for most batches, if there is one."""

    def fits(self, batch: Batch) -> tf.Tensor:
        """Return whether the paddings are enough for a batch that is not prepared."""


def apply_loss(
    loss: Loss, predictions: Predictions, rows: dict[str, Rows], examples: tf.Tensor
) -> Outcome:
    """Apply a loss to predictions, and return the outcome of the batch, without new states.

    Args:
        examples: The number of examples, or the sum of their weights, a float32 scalar.
    """
    total, parts = loss.loss(predictions, rows)
    return Outcome(tf.convert_to_tensor(total, tf.float32), examples, parts)


# Each kind of draw has its own stream of random numbers, so that a new kind changes no other.
_STREAMS = {
    "window": 1,
    "negatives": 2,
    "initial": 3,
    "kernel": 4,
    "recurrent": 5,
    "users": 6,
    "items": 7,
    "dropped_inputs": 8,
    "dropped_outputs": 9,
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
