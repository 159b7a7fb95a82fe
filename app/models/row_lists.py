"""Vectors that are sums of rows of a table, such as those of words with n-grams."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ..tables.device import host_variable
from ..tables.row_reads import unique
from ..types import HOST, Rows
from .averages import average

# The rows of even and of odd ids are partitions of their own. Reading, adding and writing rows are
# long operations of one core each, so two keep two cores busy (data/benchmarks/README.md).
PARTITIONS = 2


class _Lists(NamedTuple):
    """The rows of each vector that are in one partition.

    Attributes:
        rows_N: The rows, one vector after the other, int32.
        starts: Where the list of each vector begins, and the end, (V + 1,) int64.
        sizes_V: The length of each list, int64.
    """

    rows_N: tf.Variable
    starts: tf.Variable
    sizes_V: tf.Variable

    def read(self, ids_W: tf.Tensor) -> tf.Tensor:
        """Return the rows of ids, one list after the other, int32."""
        with tf.device(self.rows_N.device):  # elsewhere it would be copied as a whole
            return tf.raw_ops.RaggedGather(
                params_nested_splits=[self.starts],
                params_dense_values=self.rows_N,
                indices=ids_W,
                OUTPUT_RAGGED_RANK=1,
            ).output_dense_values

    def splits(self, ids_W: tf.Tensor) -> tf.Tensor:
        """Return where the list of each id begins in the result of `read`, and the end, int64."""
        with tf.device(HOST):
            ends_W = tf.cumsum(tf.gather(self.sizes_V, ids_W))
            return tf.concat([tf.zeros([1], tf.int64), ends_W], axis=0)


class RowLists:
    """The rows of a table whose sum, times a factor, is each of V vectors.

    A row that a vector has twice counts twice. The lists of rows are in the memory of the host.

    Args:
        rows_N: The rows, one vector after the other, int32.
        starts: Where the list of each vector begins in `rows_N`, and the end, (V + 1,).
        rows: The number of rows of the table.
        is_mean: Whether a vector is the mean of its rows; else it is their sum.
    """

    def __init__(self, rows_N: np.ndarray, starts: np.ndarray, rows: int, is_mean: bool = False):
        self.rows = rows
        sizes_V = np.diff(starts)
        owners_N = np.repeat(np.arange(len(sizes_V)), sizes_V)
        self._sizes_V = host_variable(sizes_V.astype(np.float32)) if is_mean else None
        self._lists = []
        for partition in range(PARTITIONS):
            of_partition_N = rows_N % PARTITIONS == partition
            counts_V = np.bincount(owners_N[of_partition_N], minlength=len(sizes_V))
            ends = np.concatenate([[0], np.cumsum(counts_V)])
            self._lists.append(
                _Lists(*map(host_variable, (rows_N[of_partition_N], ends, counts_V)))
            )

    def lookups(self, ids: tf.Tensor) -> list[tf.Tensor]:
        """Return the rows of all unique ids, one list after the other, by partition."""
        return self._read(unique(ids)[0])

    def take_unique(self, ids: tf.Tensor, rows: Rows) -> Rows:
        """Return the vectors of the unique ids, float32, and the index of each id among them.

        Each unique vector is composed once. The gradient by a row is in float32.

        Args:
            ids: The ids that `lookups` was called with, M in all.
            rows: The rows of these lookups.
        """
        ids_W, inverse_M = unique(ids)
        return Rows(self._compose(ids_W, rows), inverse_M, ids_W)

    def compose(self, ids_W: tf.Tensor, gather: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
        """Return the vectors of unique ids, (W, D) float32.

        Args:
            gather: Takes ids of rows (U,), returns the rows (U, D) float32.
        """
        partitions = [unique(ids_N) for ids_N in self._read(ids_W)]
        rows = [Rows(gather(ids_U), inverse_N) for ids_U, inverse_N in partitions]
        return self._compose(ids_W, Rows(None, None, partitions=rows))

    def _read(self, ids_W: tf.Tensor) -> list[tf.Tensor]:
        """Return the rows of unique ids in each partition, one list after the other, int32."""
        return [lists.read(ids_W) for lists in self._lists]

    def _compose(self, ids_W: tf.Tensor, rows: Rows) -> tf.Tensor:
        """Return the vectors of the unique ids whose lists of rows were looked up, (W, D)."""
        with tf.device(HOST):
            starts = [lists.splits(ids_W) for lists in self._lists]
            if self._sizes_V is None:
                shares_W = tf.ones(tf.shape(ids_W))
            else:
                shares_W = 1 / tf.gather(self._sizes_V, ids_W)
            partitions, counts = (
                rows.partitions,
                [_count_rows(partition.inverse_N) for partition in rows.partitions],
            )
            if not partitions:  # all rows are one lookup
                inverses = tf.split(rows.inverse_N, [of_partition[-1] for of_partition in starts])
                partitions = [Rows(rows.values_UD, inverse_N) for inverse_N in inverses]
                counts = [_count_rows(rows.inverse_N)] * PARTITIONS
        by_partition = zip(partitions, counts, starts, strict=True)
        return tf.add_n([_weigh_lists(*of_partition, shares_W) for of_partition in by_partition])


def _count_rows(inverse_N: tf.Tensor) -> tf.Tensor:
    """Return the number of unique rows, an int32 scalar in host memory.

    The shape of the rows has it, too, but on a GPU the step would wait for that.
    """
    return tf.reduce_max(tf.concat([[-1], inverse_N], axis=0)) + 1


def _weigh_lists(rows: Rows, count: tf.Tensor, starts: tf.Tensor, shares_W: tf.Tensor) -> tf.Tensor:
    """Return the sum of the rows of each of W lists, times the share of one row, (W, D).

    There are `count` rows; `starts` says where each list begins in `rows.inverse_N`.
    """
    with tf.device(HOST):
        # Faster than tf.cumsum over marks of where the lists begin.
        words_N = tf.raw_ops.RaggedTensorToSparse(
            rt_nested_splits=[starts], rt_dense_values=rows.inverse_N
        ).sparse_indices[:, 0]
        entries_N2 = tf.stack([words_N, tf.cast(rows.inverse_N, tf.int64)], axis=1)
        shares_N, words = tf.gather(shares_W, words_N), tf.size(shares_W)
        # `average` needs a row and a vector.
        no_row, no_word = tf.maximum(1 - count, 0), tf.maximum(1 - words, 0)
    rows_UD = tf.pad(rows.values_UD, [[0, no_row], [0, 0]])
    return average(rows_UD, entries_N2, shares_N, count + no_row, words + no_word)[:words]
