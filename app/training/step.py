"""The training step: the one place where a model, its tables and an optimizer meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from app.losses import stream
from app.models.base import Model, Outcome
from app.optimizers import rows as writer
from app.optimizers.base import Optimizer
from app.tables.base import Table
from app.tables.rows import distinct
from app.types import PHASES, Batch, Rows

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

    with _phase("lookup"):
        wanted = {name: distinct(ids) for name, ids in model.lookups(batch).items()}
    with _phase("gather"):
        values = {name: gather(name, ids_U) for name, (ids_U, _) in wanted.items()}
    with _phase("loss"), tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(values)
        rows = {
            name: Rows(values[name], positions_N, ids_U)
            for name, (ids_U, positions_N) in wanted.items()
        }
        total, examples, parts, state = Outcome(*model.loss(batch, rows))
    streamed = []
    for part in parts:
        with tf.device(tables[part.table].device):
            streamed.append(stream.train(part, gather, clip_and_update))
    with _phase("gradient"):
        gradients = tape.gradient(
            [total, *(part.hidden_ND for part in parts)],
            {name: values[name] for name in values if name not in state},
            output_gradients=[tf.ones_like(total), *(by_hidden for _, by_hidden in streamed)],
        )
        gradients = optimizer.clip(gradients)
    with _phase("update"):
        for name, gradients_UD in gradients.items():
            update(name, wanted[name][0], values[name], gradients_UD)
        for name, values_VD in state.items():
            tables[name].assign(tf.range(tf.shape(values_VD)[0]), values_VD)
    return tf.add_n([total, *(loss for loss, _ in streamed)]), examples


def _phase(name: str) -> tf.name_scope:
    """The name that a profile shows for operations; a slash enters the same scope at every step."""
    assert name in PHASES
    return tf.name_scope(f"{name}/")


def train_function(
    model: Model, tables: Mapping[str, Table], optimizer: Optimizer, seed: int
) -> TrainFunction:
    """A compiled function that makes one step for each of the S batches that it is given.

    Only the first step's loss is computed (see `losses.logistic`); the last batch of an epoch is
    filled up from behind, so that its first step always has examples.
    """

    @tf.function(autograph=False)
    def train(data_S: Any, first: tf.Tensor, rate: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # Unrolled, so that a step's draws and lookups run beside the products of the one before.
        losses = [
            step(model, tables, optimizer, batch, rate, first + index + 1)
            for index, batch in enumerate(_batches(data_S, first, seed))
        ]
        return losses[0]

    return train


def lookup_function(model: Model, seed: int) -> Callable[..., dict[str, tf.Tensor]]:
    """A compiled function from (data of S steps, first step) to the ids that those steps look up.

    By table, (N,), repeated as they come: those of the function that `train_function` makes.
    """

    @tf.function(autograph=False)
    def lookups(data_S: Any, first: tf.Tensor) -> dict[str, tf.Tensor]:
        found: dict[str, list[tf.Tensor]] = {}
        for batch in _batches(data_S, first, seed):
            for name, ids in model.lookups(batch).items():
                found.setdefault(name, []).append(tf.reshape(ids, [-1]))
        return {name: tf.concat(ids, axis=0) for name, ids in found.items()}

    return lookups


def _batches(data_S: Any, first: tf.Tensor, seed: int) -> Iterator[Batch]:
    """The batches of S steps, from this one on."""
    by_step = zip(*map(tf.unstack, tf.nest.flatten(data_S)), strict=True)
    for index, tensors in enumerate(by_step):
        data = tf.nest.pack_sequence_as(data_S, tensors)
        yield Batch(data, tf.stack([tf.constant(seed, tf.int64), first + index]))
