"""-log P as a differentiable function of variables, whose gradients are row-sparse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from ..losses import inference, stream
from ..losses.base import Gather, NormalizedLoss, Predictions
from ..losses.sampled.sampled import SampledLoss
from ..tables.row_reads import unique
from ..tables.variable import VariableRows
from ..types import HOST, Rows
from .merged import Merged

# Variables by the name of the table that they are; tensors in a stateless call of Keras.
Tables = Mapping[str, tf.Variable | tf.Tensor]


def exact(
    loss: NormalizedLoss, tables: Tables, hidden_ND: tf.Tensor, targets_N: tf.Tensor
) -> tf.Tensor:
    """-log P of each target given its vector, (N,) float32, block by block of rows.

    The gradient goes over the blocks once more, with what flows back to each prediction as its
    weight. The gradients of all rows that were read are in memory when it is done.
    """
    gather = gather_of(tables)

    @tf.custom_gradient
    def forward(hidden_ND: tf.Tensor, *_):
        def backward(upstream_N: tf.Tensor) -> tuple[Any, ...]:
            return _gradients(loss, tables, hidden_ND, targets_N, upstream_N)

        return -inference.log_probability(loss, hidden_ND, targets_N, gather), backward

    return forward(hidden_ND, *_sources(tables))


def sampled(
    loss: SampledLoss, tables: Tables, hidden_ND: tf.Tensor, targets_N: tf.Tensor, seed: tf.Tensor
) -> tf.Tensor:
    """The estimated loss of each target, (N,) float32, from the rows of targets and samples."""
    targets_N1 = targets_N[:, tf.newaxis]
    rows = {}
    with tf.device(HOST):  # as `training.gradients` does
        lookups = loss.lookups(targets_N1, tf.size(targets_N), seed)
    for name, ids in lookups.items():
        ids_U, positions_N = unique(ids)
        values_UD = tf.cast(tf.gather(tables[name], ids_U), tf.float32)
        rows[name] = Rows(values_UD, positions_N, ids_U)
    weights_N11 = tf.ones_like(targets_N, tf.float32)[:, tf.newaxis, tf.newaxis]
    return loss.vector_losses(Predictions(hidden_ND[:, tf.newaxis], targets_N1, weights_N11), rows)


def gather_of(tables: Tables) -> Gather:
    """Reads rows, (U, D) float32, from the name of a table and ids (U,)."""

    def gather(name: str, ids_U: tf.Tensor) -> tf.Tensor:
        table = tables[name]
        if _is_variable(table):
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
    """The gradients of the weighted loss: by the vectors, then by each table."""
    gather = gather_of(tables)
    seed = tf.zeros(2, tf.int64)  # nothing is drawn
    targets_N1 = targets_N[:, tf.newaxis]
    ids = loss.lookups(targets_N1, tf.size(targets_N), seed)
    wanted = {name: unique(each) for name, each in ids.items()}
    values = {name: gather(name, ids_U) for name, (ids_U, _) in wanted.items()}
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch((hidden_ND, values))
        rows = {name: Rows(values[name], at_N, ids_U) for name, (ids_U, at_N) in wanted.items()}
        weights_N11 = weights_N[:, tf.newaxis, tf.newaxis]
        predictions = Predictions(hidden_ND[:, tf.newaxis], targets_N1, weights_N11)
        total, parts = loss.loss(predictions, rows)
        total = tf.convert_to_tensor(total, tf.float32)
    streamed = [stream.gradients(part, gather) for part in parts]
    by_parts = [
        tf.cast(by_hidden, part.hidden_ND.dtype)
        for part, (_, by_hidden, _, _) in zip(parts, streamed, strict=True)
    ]
    by_hidden, by_values = tape.gradient(
        [total, *(part.hidden_ND for part in parts)],
        (hidden_ND, values),
        output_gradients=[tf.ones_like(total), *by_parts],
        unconnected_gradients="zero",
    )
    found = {name: [(wanted[name][0], by_values[name])] for name in values}
    for part, (_, _, ids_U, by_rows) in zip(parts, streamed, strict=True):
        found.setdefault(part.table, []).append((ids_U, by_rows))
    return by_hidden, *(_slices(table, found[name]) for name, table in tables.items())


def _slices(
    table: tf.Variable | tf.Tensor, found: list[tuple[tf.Tensor, tf.Tensor]]
) -> tf.IndexedSlices:
    """The gradients of rows, float32, as one by the table."""
    shape = tf.constant(table.shape.as_list(), tf.int64)
    if len(found) == 1:  # a part has no row twice
        ((ids_U, by_rows),) = found
        return Merged(by_rows, ids_U, shape)
    ids, values = zip(*found, strict=True)
    return tf.IndexedSlices(tf.concat(values, axis=0), tf.concat(ids, axis=0), shape)


def _sources(tables: Tables) -> list[tf.Tensor]:
    """What gradients by the tables flow to.

    A variable given to tf.custom_gradient would be read whole; its handle is not.
    """
    return [_watched(table).handle if _is_variable(table) else table for table in tables.values()]


def _is_variable(table: tf.Variable | tf.Tensor) -> bool:
    return isinstance(table, tf.Variable)


def _watched(table: tf.Variable) -> tf.Variable:
    """The variable, now known to the gradient tapes that watch what is read."""
    table.sparse_read(tf.zeros([0], tf.int32))
    return table
