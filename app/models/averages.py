"""Means of rows, as products with a sparse matrix.

On a CPU without AVX-512 a mean and its gradient take about a quarter of the time of TensorFlow's
SparseSegmentMean and its gradient (data/benchmarks/README.md).
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from ..system.gradients import custom_gradient
from ..types import HOST


class MeanWeights(NamedTuple):
    """The share of each row in each mean, as two sparse matrices of TensorFlow (CSR, variants).

    Attributes:
        by_mean: A matrix (B, U) for B means of U rows.
        by_row: Its transpose (U, B).
    """

    by_mean: tf.Tensor
    by_row: tf.Tensor


def transpose(matrix: tf.Tensor) -> tf.Tensor:
    """Return the transpose of a sparse matrix of float32."""
    return tf.raw_ops.SparseMatrixTranspose(input=matrix, type=tf.float32)


def make_matrix(entries_N2: tf.Tensor, values_N: tf.Tensor, shape: tf.Tensor) -> tf.Tensor:
    """Return a sparse matrix (CSR, a variant).

    Args:
        entries_N2: The row and the column of each entry, integers, by rising row. Entries of one
            row and column are added.
        values_N: The values of the entries, float32.
        shape: The rows and the columns, (2,) integers in host memory.
    """
    with tf.device(HOST):
        shape = tf.cast(shape, tf.int64)
    return tf.raw_ops.SparseTensorToCSRSparseMatrix(
        indices=tf.cast(entries_N2, tf.int64), values=values_N, dense_shape=shape
    )


def average(rows_UD: tf.Tensor, weights: MeanWeights) -> tf.Tensor:
    """Return B weighted means of rows, (B, D) float32, with a gradient by the rows.

    Args:
        weights: The share of each row in each mean.
    """

    @custom_gradient
    def means(rows_UD: tf.Tensor):
        """Return the means (B, D), with a gradient by the rows."""

        def gradient(upstream_BD: tf.Tensor) -> tf.Tensor:
            return tf.raw_ops.SparseMatrixMatMul(a=weights.by_row, b=upstream_BD)

        means_BD = tf.raw_ops.SparseMatrixMatMul(a=weights.by_mean, b=rows_UD)
        return tf.ensure_shape(means_BD, (None, rows_UD.shape[1])), gradient

    return means(rows_UD)
