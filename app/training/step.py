"""The training step: the one place where a model, its tables and an optimizer meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from ..losses import stream
from ..losses.base import Part
from ..models.base import Model
from ..optimizers import row_updates as writer
from ..optimizers.base import Optimizer
from ..tables.base import Table
from ..types import HOST, Batch, Located
from . import gradients
from .gradients import Found, phase

# Called as (data of S steps, first step, rate); gives the first step's loss, summed, and its
# examples.
TrainFunction = Callable[[Any, tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]


def step(
    model: Model,
    tables: Mapping[str, Table],
    optimizer: Optimizer,
    batch: Batch,
    rate: tf.Tensor,
    number: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Trains on one batch; its loss before the update, summed, and its examples.

    Reads, differentiates and writes the distinct rows that the batch needs, and no others. Rows
    that are streamed are clipped and written block by block.

    number: int64, 1 for the first step of the tables.
    """

    def gather(name: str, ids_U: tf.Tensor) -> tf.Tensor:
        return tables[name].gather(ids_U)

    def update(name: str, ids_U: tf.Tensor, rows_UD: tf.Tensor, gradients_UD: tf.Tensor) -> None:
        writer.update(optimizer, tables[name], ids_U, rows_UD, gradients_UD, rate, number)

    def clip_and_update(
        name: str, ids_U: tf.Tensor, rows_UD: tf.Tensor, gradients_UD: tf.Tensor
    ) -> None:
        update(name, ids_U, rows_UD, optimizer.clip({name: gradients_UD})[name])

    def streamed(part: Part) -> tuple[tf.Tensor, tf.Tensor]:
        assert part.table not in batch.rows, "a loss that streams rows knows them by their ids"
        with tf.device(tables[part.table].device):
            return stream.train(part, gather, clip_and_update)

    found, rows = gradients.of_batch(model, gather, batch, streamed)
    clipped = _clipped(optimizer, found)
    with phase("update"):
        for name, gradients_UD in clipped.items():
            update(name, found.gradients[name].ids_U, rows[name], gradients_UD)
        for name, (ids_U, rows_UD) in found.state.items():
            tables[name].assign(ids_U, rows_UD)
    return found.loss, found.examples


def apply(
    tables: Mapping[str, Table],
    optimizer: Optimizer,
    found: Found,
    rate: tf.Tensor,
    number: tf.Tensor,
) -> None:
    """Updates the rows that micro-batches touched, by the sum of their gradients."""
    clipped = _clipped(optimizer, found)
    with phase("update"):
        for name, gradients_UD in clipped.items():
            table, ids_U = tables[name], found.gradients[name].ids_U
            rows_UD = table.gather(ids_U)
            writer.update(optimizer, table, ids_U, rows_UD, gradients_UD, rate, number)
        for name, (ids_U, rows_UD) in found.state.items():
            tables[name].assign(ids_U, rows_UD)


def _clipped(optimizer: Optimizer, found: Found) -> dict[str, tf.Tensor]:
    with phase("gradient"):
        return optimizer.clip({name: rows.values_UD for name, rows in found.gradients.items()})


def train_function(
    model: Model, tables: Mapping[str, Table], optimizer: Optimizer, seed: int, micro: int = 1
) -> TrainFunction:
    """A compiled function that makes one step for each of the S batches that it is given.

    micro: how many micro-batches each of them is. Only the first step's loss is computed (see
    `losses.logistic`); the last batch of an epoch is filled up from behind, so that its first step
    always has examples.
    """

    def gather(name: str, ids_U: tf.Tensor) -> tf.Tensor:
        return tables[name].gather(ids_U)

    def trained(
        batches: Sequence[Batch], rate: tf.Tensor, number: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        if len(batches) == 1:
            return step(model, tables, optimizer, batches[0], rate, number)
        devices = {name: table.device for name, table in tables.items()}
        found = gradients.collected(model, gather, batches, devices)
        apply(tables, optimizer, found, rate, number)
        return found.loss, found.examples

    @tf.function(autograph=False)
    def train(data_S: Any, first: tf.Tensor, rate: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # Unrolled, so that a step's draws and lookups run beside the products of the one before.
        losses = [
            trained(batches, rate, first + index + 1)
            for index, batches in enumerate(steps(data_S, first, seed, micro))
        ]
        return losses[0]

    return train


def lookup_function(model: Model, seed: int, micro: int = 1) -> Callable[..., dict[str, tf.Tensor]]:
    """A compiled function from (data of S steps, first step) to the ids that those steps look up.

    By table, (N,), repeated as they come: those of the function that `train_function` makes.
    """

    @tf.function(autograph=False)
    def lookups(data_S: Any, first: tf.Tensor) -> dict[str, tf.Tensor]:
        found: dict[str, list[tf.Tensor]] = {}
        for batches in steps(data_S, first, seed, micro):
            for batch in batches:
                with tf.device(HOST):
                    for name, ids in model.lookups(batch).items():
                        found.setdefault(name, []).append(tf.reshape(ids, [-1]))
        with tf.device(HOST):
            return {name: tf.concat(ids, axis=0) for name, ids in found.items()}

    return lookups


def steps(
    data_S: Any, first: tf.Tensor, seed: int, micro: int, some: range | None = None
) -> Iterator[list[Batch]]:
    """The micro-batches of S steps, from this one on.

    data_S: a nest of tensors (S, N, ...), or `Located`; micro-batches are equal parts along their
    second dimension. some: which of the `micro` of a step are wanted; all by default.
    """
    with tf.device(HOST):  # where all of it is
        by_step = list(zip(*map(tf.unstack, tf.nest.flatten(data_S)), strict=True))
    for index, tensors in enumerate(by_step):
        batches = []
        with tf.device(HOST):
            split = [tf.split(tensor, micro) if micro > 1 else [tensor] for tensor in tensors]
            for part in some or range(micro):
                data = tf.nest.pack_sequence_as(data_S, [parts[part] for parts in split])
                data, rows = data if isinstance(data, Located) else (data, {})
                seeds = tf.stack([tf.constant(seed, tf.int64), (first + index) * micro + part])
                batches.append(Batch(data, seeds, part, rows))
        yield batches
