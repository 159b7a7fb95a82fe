"""Means of rows, as products with a sparse matrix, or as sums that XLA compiles.

On a CPU without AVX-512 a mean and its gradient take about a quarter of the time of TensorFlow's
SparseSegmentMean and its gradient (data/benchmarks/README.md).
"""

from __future__ import annotations

import tensorflow as tf

from ..system.gradients import custom_gradient
from ..types import HOST


def average(
    rows_UD: tf.Tensor,
    entries_N2: tf.Tensor,
    shares_N: tf.Tensor,
    count: int | tf.Tensor,
    means: int | tf.Tensor,
) -> tf.Tensor:
    """Return B weighted means of rows, (B, D) float32, with a gradient by the rows.

    Args:
        rows_UD: The rows, float32.
        entries_N2: The mean and the row of each entry, integers, by rising mean. Entries of one
            mean and row are added.
        shares_N: The share of the entry's row in the mean, float32.
        count: The number of rows, at least 1, known in host memory.
        means: The number of means, B, at least 1.
    """
    with tf.device(HOST):
        shape = tf.cast(tf.stack([means, count]), tf.int64)
    by_mean = tf.raw_ops.SparseTensorToCSRSparseMatrix(
        indices=tf.cast(entries_N2, tf.int64), values=shares_N, dense_shape=shape
    )
    by_row = tf.raw_ops.SparseMatrixTranspose(input=by_mean, type=tf.float32)

    @custom_gradient
    def weigh(rows_UD: tf.Tensor):
        """Return the means (B, D), with a gradient by the rows."""

        def gradient(upstream_BD: tf.Tensor) -> tf.Tensor:
            return tf.raw_ops.SparseMatrixMatMul(a=by_row, b=upstream_BD)

        means_BD = tf.raw_ops.SparseMatrixMatMul(a=by_mean, b=rows_UD)
        return tf.ensure_shape(means_BD, (None, rows_UD.shape[1])), gradient

    return weigh(rows_UD)


def sum_segments(
    rows_UD: tf.Tensor,
    rows_N: tf.Tensor,
    shares_N: tf.Tensor,
    segments_N: tf.Tensor,
    segments: int | tf.Tensor,
) -> tf.Tensor:
    """Return B weighted sums of rows, (B, D) float32; XLA has no product with a sparse matrix.

    Args:
        rows_UD: The rows, float32.
        rows_N: The row of each entry.
        shares_N: The weight of the entry's row in its sum, float32.
        segments_N: The sum that the entry belongs to.
        segments: The number of sums, B.
    """
    rows_ND = tf.gather(rows_UD, rows_N) * shares_N[:, tf.newaxis]
    return tf.math.unsorted_segment_sum(rows_ND, segments_N, segments)
