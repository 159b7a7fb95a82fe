"""The negative log probability as a function of tables, with row-sparse gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from ...losses import inference, stream
from ...losses.base import Gather, NormalizedLoss, Predictions
from ...losses.sampled_losses import SampledLoss
from ...system.gradients import custom_gradient
from ...system.xla import under_xla
from ...tables.device import VariableRows
from ...tables.row_reads import gather_unique
from ...types import HOST
from ..optimizers.row_accumulation import Merged

# The tables by name: variables, or tensors in a stateless call of Keras.
Tables = Mapping[str, tf.Variable | tf.Tensor]


def exact(
    loss: NormalizedLoss, tables: Tables, hidden_ND: tf.Tensor, targets_N: tf.Tensor
) -> tf.Tensor:
    """Return -log P of each target, float32 (N,), computed block by block of rows.

    The backward pass reads the blocks once more, with the incoming gradient of each target as its
    weight. It then holds the gradients of all rows that were read.

    Args:
        targets_N: The ranks of the targets, int32.
    """
    gather = gather_of(tables)

    @custom_gradient
    def forward(hidden_ND: tf.Tensor, *_):
        """Return -log P of each target; the tables are arguments only for their gradients."""

        def backward(upstream_N: tf.Tensor) -> tuple[Any, ...]:
            """Return the gradients by the vectors and by each table, weighted by target."""
            return _gradients(loss, tables, hidden_ND, targets_N, upstream_N)

        return -inference.log_probability(loss, hidden_ND, targets_N, gather), backward

    return forward(hidden_ND, *_sources(tables))


def sampled(
    loss: SampledLoss, tables: Tables, hidden_ND: tf.Tensor, targets_N: tf.Tensor, seed: tf.Tensor
) -> tf.Tensor:
    """Return the loss of each target, float32 (N,), estimated from sampled words.

    Args:
        targets_N: The ranks of the targets, int32.
        seed: The seed of the samples, int64 (2,). All targets share the samples.
    """
    targets_N1 = targets_N[:, tf.newaxis]
    with tf.device(HOST):  # as `training.gradients` does
        lookups = loss.lookups(targets_N1, tf.size(targets_N), seed)
    rows = gather_unique(
        lookups, lambda name, ids_U: tf.cast(tf.gather(tables[name], ids_U), tf.float32)
    )
    weights_N11 = tf.ones_like(targets_N, tf.float32)[:, tf.newaxis, tf.newaxis]
    return loss.vector_losses(Predictions(hidden_ND[:, tf.newaxis], targets_N1, weights_N11), rows)


def gather_of(tables: Tables) -> Gather:
    """Return a function that gathers rows, float32 (U, D), by the table's name and ids (U,)."""

    def gather(name: str, ids_U: tf.Tensor) -> tf.Tensor:
        """Return rows of a variable or a tensor, float32 (U, D)."""
        table = tables[name]
        if isinstance(table, tf.Variable):
            return VariableRows(table).gather(ids_U)
        return tf.cast(tf.gather(table, ids_U), tf.float32)

    return gather


def _gradients(
    loss: NormalizedLoss,
    tables: Tables,
    hidden_ND: tf.Tensor,
    targets_N: tf.Tensor,
    weights_N: tf.Tensor,
) -> tuple[Any, ...]:
    """Return the gradients of the loss, weighted by target: by the vectors, then by each table.

    Those by the tables are row-sparse, in the order of `tables`.
    """
    gather = gather_of(tables)
    seed = tf.zeros(2, tf.int64)  # not used: these losses draw no samples
    targets_N1 = targets_N[:, tf.newaxis]
    rows = gather_unique(loss.lookups(targets_N1, tf.size(targets_N), seed), gather)
    values = {name: table_rows.values_UD for name, table_rows in rows.items()}
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch((hidden_ND, values))
        weights_N11 = weights_N[:, tf.newaxis, tf.newaxis]
        predictions = Predictions(hidden_ND[:, tf.newaxis], targets_N1, weights_N11)
        total, parts = loss.loss(predictions, rows)
        total = tf.convert_to_tensor(total, tf.float32)
    streamed = [stream.differentiate(part, gather) for part in parts]
    by_hidden, by_values = tape.gradient(
        [total, *(part.hidden_ND for part in parts)],
        (hidden_ND, values),
        output_gradients=[tf.ones_like(total), *(by_hidden for _, by_hidden, _ in streamed)],
        unconnected_gradients="zero",
    )
    by_table = {name: [(rows[name].ids_U, by_values[name])] for name in values}
    for part, (*_, by_rows) in zip(parts, streamed, strict=True):
        by_table.setdefault(part.table, []).append(tuple(by_rows))
    return by_hidden, *(_slices(table, by_table[name]) for name, table in tables.items())


def _slices(
    table: tf.Variable | tf.Tensor, gradients: list[tuple[tf.Tensor, tf.Tensor]]
) -> tf.IndexedSlices:
    """Return float32 gradients of rows, pairs of ids and values, as one gradient of the table.

    One pair becomes a `Merged`. With several pairs, or under XLA, rows may repeat.
    """
    shape = tf.constant(table.shape.as_list(), tf.int64)
    if len(gradients) == 1 and not under_xla():  # where ids to read are unique
        ((ids_U, by_rows),) = gradients
        return Merged(by_rows, ids_U, shape)
    ids, values = zip(*gradients, strict=True)
    return tf.IndexedSlices(tf.concat(values, axis=0), tf.concat(ids, axis=0), shape)


def _sources(tables: Tables) -> list[tf.Tensor]:
    """Return the tensors through which a custom gradient passes the gradients of the tables.

    It would read a variable whole, but not the handle of a variable.
    """
    variables = [table for table in tables.values() if isinstance(table, tf.Variable)]
    for table in variables:  # a read of no rows makes gradient tapes watch it
        table.sparse_read(tf.zeros([0], tf.int32))
    return [t.handle if isinstance(t, tf.Variable) else t for t in tables.values()]
