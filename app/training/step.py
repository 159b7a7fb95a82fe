"""The training step: the one place where a model, its tables and an optimizer meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tensorflow as tf

from app.models.base import Model
from app.models.rows import distinct
from app.optimizers import rows as writer
from app.optimizers.base import Optimizer
from app.tables.base import Table
from app.types import PHASES, Batch, Rows

# Called as (tokens_SBL, first step, rate); gives the first step's loss, summed, and its examples.
TrainFunction = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]


def step(
    model: Model,
    tables: Mapping[str, Table],
    optimizer: Optimizer,
    batch: Batch,
    rate: tf.Tensor,
    number: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Trains on one batch; its loss before the update, summed, and its examples.

    Reads, differentiates and writes the distinct rows that the batch needs, and no others.
    number: int64, 1 for the first step of the tables.
    """
    with _phase("lookup"):
        wanted = {name: distinct(ids) for name, ids in model.lookups(batch).items()}
    with _phase("gather"):
        values = {name: tables[name].gather(ids_U) for name, (ids_U, _) in wanted.items()}
    with _phase("loss"), tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(values)
        rows = {name: Rows(values[name], positions_N) for name, (_, positions_N) in wanted.items()}
        total, examples = model.loss(batch, rows)
    with _phase("gradient"):
        gradients = optimizer.clip(tape.gradient(total, values))
    with _phase("update"):
        for name, (ids_U, _) in wanted.items():
            writer.update(
                optimizer, tables[name], ids_U, values[name], gradients[name], rate, number
            )
    return total, examples


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
    def train(
        tokens_SBL: tf.Tensor, first: tf.Tensor, rate: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        # Unrolled, so that a step's draws and lookups run beside the products of the one before.
        losses = []
        for index, tokens_BL in enumerate(tf.unstack(tokens_SBL)):
            batch = Batch(tokens_BL, tf.stack([tf.constant(seed, tf.int64), first + index]))
            losses.append(step(model, tables, optimizer, batch, rate, first + index + 1))
        return losses[0]

    return train
