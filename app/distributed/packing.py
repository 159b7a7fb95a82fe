"""Step gradients as one flat vector, so that replicas exchange one tensor in a step.

The layout of a vector, all float32: the number of rows of each table (the bits of int32), the
loss, the examples, the flags; then for each table its ids (the bits of int32) and its values.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from ..training.gradients import RowGradients, StepGradients, add_gradients


def packed_size(columns: Sequence[int], sizes: Sequence[tf.Tensor], flags: int) -> tf.Tensor:
    """Return the length of a packed vector, an int32 scalar.

    Args:
        columns: The columns of each table.
        sizes: The number of rows of each table, int32 scalars.
        flags: The number of flags.
    """
    rows = [size * (1 + width) for size, width in zip(sizes, columns, strict=True)]
    return tf.add_n(rows) + _head_size(len(rows), flags)


def _head_size(tables: int, flags: int) -> int:
    """Return the length of the part before the ids: sizes of tables, loss, examples, flags."""
    return tables + 2 + flags


def pack(gradients: StepGradients, flags: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Return step gradients and some flags as one float32 vector.

    Args:
        gradients: The gradients of a replica. Ids must fit in int32; `rows` are not sent.
        flags: Numbers to send with them, float32.
        size: The length of the vector, which is filled up with zeros; at least `packed_size`.
    """
    tables = [*gradients.gradients.values(), *gradients.state.values()]
    sizes = [tf.size(rows.ids_U) for rows in tables]
    head = [tf.stack([gradients.loss, gradients.examples]), tf.reshape(flags, [-1])]
    body = [
        tf.reshape(part, [-1])
        for rows in tables
        for part in (_as_float(tf.cast(rows.ids_U, tf.int32)), rows.values_UD)
    ]
    columns = [rows.values_UD.shape[1] for rows in tables]
    filling = tf.zeros([size - packed_size(columns, sizes, head[1].shape[0])])
    return tf.concat([_as_float(tf.stack(sizes)), *head, *body, filling], axis=0)


def unpack(
    vectors: tf.Tensor, count: int, like: StepGradients, flags: int, size: tf.Tensor
) -> tuple[StepGradients, tf.Tensor]:
    """Return the sum of the gradients in several packed vectors, and the sums (F,) of their flags.

    Args:
        vectors: The vectors of all replicas, one after the other.
        count: The number of vectors.
        like: The gradients in one of them; gives the tables, their columns and the dtype of ids.
        flags: The number of flags in each vector.
        size: The length of each vector.
    """
    unpacked = [_unpack_one(vectors, number * size, like, flags) for number in range(count)]
    parts, flag_parts = zip(*unpacked, strict=True)
    return add_gradients(parts), tf.add_n(flag_parts)


def _unpack_one(
    vectors: tf.Tensor, offset: tf.Tensor, like: StepGradients, flags: int
) -> tuple[StepGradients, tf.Tensor]:
    """Return the gradients and flags of the vector at an offset."""
    tables = {**like.gradients, **like.state}
    head = vectors[offset : offset + _head_size(len(tables), flags)]
    sizes = tf.unstack(tf.bitcast(head[: len(tables)], tf.int32), num=len(tables))
    loss, examples = tf.unstack(head[len(tables) : len(tables) + 2], num=2)
    flags_F = head[len(tables) + 2 :]
    offset += _head_size(len(tables), flags)
    unpacked = {}
    for (name, rows), size in zip(tables.items(), sizes, strict=True):
        columns = rows.values_UD.shape[1]
        ids_U = tf.bitcast(vectors[offset : offset + size], tf.int32)
        offset += size
        values = vectors[offset : offset + size * columns]
        offset += size * columns
        values_UD = tf.reshape(values, (-1, columns))
        unpacked[name] = RowGradients(tf.cast(ids_U, rows.ids_U.dtype), values_UD)
    gradients = {name: unpacked[name] for name in like.gradients}
    state = {name: unpacked[name] for name in like.state}
    return StepGradients(loss, examples, gradients, state), flags_F


def _as_float(values_N: tf.Tensor) -> tf.Tensor:
    """Return the bits of int32 numbers as float32; they are copied, never computed with."""
    return tf.bitcast(values_N, tf.float32)
