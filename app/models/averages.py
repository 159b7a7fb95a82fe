"""Means of rows, as products with a sparse matrix.

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
        count: The number of rows, known in host memory.
        means: The number of means, B.
    """
    with tf.device(HOST):  # at least one row, as the kernel of the product divides by their number
        sizes = tf.stack([means, count])
        shape = tf.maximum(sizes, 1)
    by_mean = tf.raw_ops.SparseTensorToCSRSparseMatrix(
        indices=tf.cast(entries_N2, tf.int64),
        values=shares_N,
        dense_shape=tf.cast(shape, tf.int64),
    )
    by_row = tf.raw_ops.SparseMatrixTranspose(input=by_mean, type=tf.float32)

    def multiply(matrix: tf.Tensor, factor_MD: tf.Tensor, of: int, to: int) -> tf.Tensor:
        """Return a product with a sparse matrix; `of` and `to` are the places of its sizes."""
        factor_MD = tf.pad(factor_MD, [[0, shape[of] - sizes[of]], [0, 0]])
        return tf.raw_ops.SparseMatrixMatMul(a=matrix, b=factor_MD)[: sizes[to]]

    @custom_gradient
    def weigh(rows_UD: tf.Tensor):
        """Return the means (B, D), with a gradient by the rows."""

        def gradient(upstream_BD: tf.Tensor) -> tf.Tensor:
            return multiply(by_row, upstream_BD, 0, 1)

        means_BD = multiply(by_mean, rows_UD, 1, 0)
        return tf.ensure_shape(means_BD, (None, rows_UD.shape[1])), gradient

    return weigh(rows_UD)
