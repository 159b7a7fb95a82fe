"""Functions to read each row of a batch once and to sum the gradients of repeated ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import tensorflow as tf

from ..types import HOST, Rows

# The size of the parts in which a whole table is read: small beside a table, large beside the cost
# of a call.
_PART_BYTES = 16 << 20
_FLOAT_BYTES = 4


def row_slices(rows: int, columns: int) -> Iterator[slice]:
    """Split the rows of a table into parts of about 16 MB, at least one row each.

    Args:
        rows: The number of rows, V.
        columns: The number of float32 columns, D.

    Yields:
        Slices that together cover 0 .. V - 1, in order.
    """
    count = max(1, _PART_BYTES // (_FLOAT_BYTES * columns))
    for start in range(0, rows, count):
        yield slice(start, min(start + count, rows))


def unique(ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the unique ids and, for each id, its index among them.

    Both results are in host memory, whatever the device. Every later shape depends on U, so a step
    would have to wait for a GPU that counted the ids.

    Args:
        ids: Integers or strings of any shape, N in all.

    Returns:
        unique_ids: (U,), dtype of the ids, in order of first appearance.
        inverse: (N,) int32, such that `unique_ids[inverse]` are the flat ids.
    """
    with tf.device(HOST):
        ids_U, inverse_N = tf.unique(tf.reshape(ids, [-1]))
        return ids_U, inverse_N


def gather_unique(
    lookups: Mapping[str, tf.Tensor], gather: Callable[[str, tf.Tensor], tf.Tensor]
) -> dict[str, Rows]:
    """Return the rows of the given ids, each row once, by the name of the table.

    Args:
        lookups: Ids of any shape, by the name of the table.
        gather: Reads rows: takes the name of a table and ids (U,), returns rows (U, D) float32.

    Returns:
        `Rows` with the unique rows, the index of each id among them, and the unique ids.
    """
    rows = {}
    for name, ids in lookups.items():
        ids_U, inverse_N = unique(ids)
        rows[name] = Rows(gather(name, ids_U), inverse_N, ids_U)
    return rows


def take(rows: Rows, dtype: tf.DType) -> tf.Tensor:
    """Return one row for each id of the batch, repeated ids included.

    The gradient sums over the ids that share a row, in float32 whatever the dtype.

    Args:
        rows: The unique rows of the batch.
        dtype: The dtype of the result.

    Returns:
        Rows (N, D).
    """

    @tf.custom_gradient
    def taken(values_UD: tf.Tensor):
        """Return a row of `dtype` for each id, (N, D), with a gradient by the unique rows."""

        def gradient(upstream_ND: tf.Tensor) -> tf.Tensor:
            return sum_rows(upstream_ND, rows.inverse_N, tf.shape(values_UD)[0])

        return tf.gather(tf.cast(values_UD, dtype), rows.inverse_N), gradient

    return taken(rows.values_UD)


def sum_rows(values_ND: tf.Tensor, inverse_N: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Return the sum of the values of each unique id, added in float32.

    Args:
        values_ND: One row of values for each id, (N, D).
        inverse_N: The index of each id among the unique ids, (N,) int32 (see `unique`).
        count: The number of unique ids, U.

    Returns:
        Sums (U, D), float32.
    """
    values_ND = tf.cast(values_ND, tf.float32)
    if not values_ND.shape.is_fully_defined():
        return tf.math.unsorted_segment_sum(values_ND, inverse_N, count)
    return _sum_rows(values_ND, inverse_N)[:count]


@tf.function(autograph=False, jit_compile=True)
def _sum_rows(values_ND: tf.Tensor, inverse_N: tf.Tensor) -> tf.Tensor:
    """Return the sum of the values of each unique id, (N, D): zeros follow the U sums.

    XLA's loop takes 20 ns for a row of 100 columns, tf.math.unsorted_segment_sum 130 ns on a CPU.
    XLA compiles for static shapes, so the caller cuts the result to U rows.
    """
    return tf.math.unsorted_segment_sum(values_ND, inverse_N, values_ND.shape[0])
