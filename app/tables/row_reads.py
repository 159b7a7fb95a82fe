"""How rows are read that were asked for: each gathered once, its gradients summed."""

from __future__ import annotations

from collections.abc import Iterator

import tensorflow as tf

from ..types import HOST, Rows

# Read or written at a time where all rows have to be: little beside a table, much beside a call.
_PART_BYTES = 16 << 20
_FLOAT = 4  # bytes


def parts(rows: int, columns: int) -> Iterator[slice]:
    """All of so many rows, a part of some MB in float32 after the other."""
    count = max(1, _PART_BYTES // (_FLOAT * columns))
    for start in range(0, rows, count):
        yield slice(start, min(start + count, rows))


def distinct(ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the unique ids, (U,) in order of appearance, and each id's place among them.

    Args:
        ids: Integers or strings of any shape, N in all.

    Returns:
        (U,) of the ids' dtype and (N,) int32, both in the memory of the host: everything after has
        a shape by U, for which a GPU that counted the ids would keep the step waiting.
    """
    with tf.device(HOST):
        ids_U, positions_N = tf.unique(tf.reshape(ids, [-1]))
        return ids_U, positions_N


def take(rows: Rows, dtype: tf.DType) -> tf.Tensor:
    """The row of every id asked for, (N, D), as `dtype`.

    The gradient is summed over the ids that share a row, in float32 whatever the dtype.
    """

    @tf.custom_gradient
    def taken(values_UD: tf.Tensor):
        def gradient(upstream_ND: tf.Tensor) -> tf.Tensor:
            return sum_rows(upstream_ND, rows.positions_N, tf.shape(values_UD)[0])

        return tf.gather(tf.cast(values_UD, dtype), rows.positions_N), gradient

    return taken(rows.values_UD)


def sum_rows(values_ND: tf.Tensor, positions_N: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """The float32 sum of the values at each of `count` positions, (count, D)."""
    values_ND = tf.cast(values_ND, tf.float32)
    if not values_ND.shape.is_fully_defined():
        return tf.math.unsorted_segment_sum(values_ND, positions_N, count)
    return _sum_rows(values_ND, positions_N)[:count]


@tf.function(autograph=False, jit_compile=True)
def _sum_rows(values_ND: tf.Tensor, positions_N: tf.Tensor) -> tf.Tensor:
    """The sum of the values at each position, for as many positions as there may be.

    XLA's loop takes 20 ns for a row of 100 columns where tf.math.unsorted_segment_sum takes 130 on
    a CPU. It compiles for static shapes, so the result is cut to size outside.
    """
    return tf.math.unsorted_segment_sum(values_ND, positions_N, values_ND.shape[0])
