"""Vectors that are sums of rows of a table, such as those of words with n-grams."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import tensorflow as tf

from ..losses.sampling import count_at_most
from ..system.python_functions import custom_gradient
from ..system.xla import under_xla
from ..tables.cached import NONE
from ..tables.device import PreparedValues
from ..tables.row_reads import take, unique
from ..text.subwords import list_rows
from ..types import HOST, NgramRule, Rows


def average(
    rows_UD: tf.Tensor,
    entries_N2: tf.Tensor,
    shares_N: tf.Tensor,
    count: int | tf.Tensor,
    means: int | tf.Tensor,
) -> tf.Tensor:
    """Return B weighted means of rows, (B, D) float32, with a gradient by the rows.

    They are a product with a sparse matrix. On a CPU without AVX-512 a mean and its gradient take
    about a quarter of the time of TensorFlow's SparseSegmentMean and its gradient
    (data/benchmarks/README.md).

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
    rows: Rows, shares_N: tf.Tensor, segments_N: tf.Tensor, segments: int
) -> tf.Tensor:
    """Return B weighted sums of rows, (B, D) float32; XLA has no product with a sparse matrix.

    Args:
        rows: The rows, and the row of each of N entries.
        shares_N: The weight of the entry's row in its sum, float32.
        segments_N: The sum that the entry belongs to.
        segments: The number of sums, B.
    """
    rows_ND = take(rows, tf.float32) * shares_N[:, tf.newaxis]
    return tf.math.unsorted_segment_sum(rows_ND, segments_N, segments)


# The rows of even and of odd ids are partitions of their own. Reading, adding and writing rows are
# long operations of one core each, so two keep two cores busy (data/benchmarks/README.md).
PARTITIONS = 2


# A program of XLA has room for the lists of usual batches: so many standard deviations above the
# mean of batches of words that are drawn one by one. A text repeats its words, so it needs less:
# for 4,096 words of Wikipedia that mean is 62,000 rows; rows of the text need 58,000 at most.
_DEVIATIONS = 4


_RowLists = TypeVar("_RowLists", bound="RowLists")


class ListedRows(NamedTuple):
    """The rows of the lists of some ids, padded to a static size.

    Attributes:
        rows_N: The rows, one list after the other, int32; then the largest int32, which is no row,
            or `NONE` where rows are located before the step.
        places_N: The place in `ids_W` of the id that each row is for, int32; -1 for padding.
        shares_N: The share of each row in the vector of its id, float32; 0 for padding.
        ids_W: The ids in ascending order. Only the first of equal ids has a list.
        inverse_W: For each id as it was given, the first place of it in `ids_W`, int32.
    """

    rows_N: tf.Tensor
    places_N: tf.Tensor
    shares_N: tf.Tensor
    ids_W: tf.Tensor
    inverse_W: tf.Tensor


class RowLists:
    """The rows of a table whose sum, times a factor, is each of V vectors.

    A row that a vector has twice counts twice. The lists of rows are in the memory of the host.
    Under XLA they are in that of the device.

    Args:
        rows_N: The rows, one vector after the other, int32.
        starts: Where the list of each vector begins in `rows_N`, and the end, (V + 1,).
        rows: The number of rows of the table.
        is_mean: Whether a vector is the mean of its rows; else it is their sum.
        is_static: Whether as many rows are looked up for as many ids, also without XLA.
    """

    def __init__(
        self,
        rows_N: np.ndarray,
        starts: np.ndarray,
        rows: int,
        is_mean: bool = False,
        is_static: bool = False,
    ):
        self.rows, self._is_mean, self._sizes_V = rows, is_mean, np.diff(starts)
        self._is_static = is_static
        self._usual_V: np.ndarray | None = None
        # Each vector has a list in each partition, one after the other.
        lists_N = np.repeat(np.arange(len(self._sizes_V)) * PARTITIONS, self._sizes_V)
        lists_N += rows_N % PARTITIONS
        sizes_L = np.bincount(lists_N, minlength=len(self._sizes_V) * PARTITIONS)
        self._rows_N = PreparedValues(rows_N[np.argsort(lists_N, kind="stable")])
        self._starts = PreparedValues(np.concatenate([[0], np.cumsum(sizes_L)]))

    def for_usual(self: _RowLists, chances_V: np.ndarray) -> _RowLists:
        """Return the same lists, with less padding under XLA: they may be too many (see `fit`).

        Args:
            chances_V: The probability of each vector's id, where ids are drawn one by one.
        """
        lists = copy.copy(self)
        lists._usual_V = chances_V
        return lists

    def fit(self, ids: tf.Tensor) -> tf.Tensor:
        """Return whether the lists of ids are not too many for the padding under XLA."""
        *_, ends_W = self._measure(ids)
        return ends_W[-1] <= self._padded(ids.shape.num_elements())

    def prepare(self, ids: tf.Tensor | ListedRows) -> tf.Tensor | ListedRows:
        """Return the rows of the lists of ids, padded; or the argument if they need no padding."""
        if not (self._is_static or under_xla()) or isinstance(ids, ListedRows):
            return ids
        ids_W, begins_W, sizes_W, ends_W = self._measure(ids)
        count = ids_W.shape[0]
        entry_N = tf.range(self._padded(count))
        is_real_N = entry_N < ends_W[-1]
        places_N = count_at_most(ends_W, entry_N)
        index_N = tf.minimum(places_N, count - 1)
        before_N = tf.gather(ends_W - sizes_W, index_N)
        start_N = tf.gather(begins_W, index_N) + tf.cast(entry_N - before_N, tf.int64)
        # tf.gather of a variable is an operation that `tf.vectorized_map` lacks.
        all_N = tf.convert_to_tensor(self._rows_N.read())
        rows_N = tf.gather(all_N, tf.minimum(start_N, all_N.shape[0] - 1))
        shares_N = tf.ones_like(entry_N, tf.float32)
        if self._is_mean:
            shares_N = 1 / tf.cast(tf.gather(sizes_W, index_N), tf.float32)
        return ListedRows(
            tf.where(
                is_real_N, tf.cast(rows_N, tf.int32), NONE if self._is_static else tf.int32.max
            ),
            tf.where(is_real_N, places_N, -1),
            tf.where(is_real_N, shares_N, 0.0),
            ids_W,
            count_at_most(ids_W, tf.reshape(ids, [-1]) - 1),
        )

    def _measure(self, ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return sorted ids, where their lists begin, the lengths, and the sums of these.

        A repeated id has a length of 0.
        """
        starts = tf.convert_to_tensor(self._starts.read())
        ids_W = tf.sort(tf.reshape(ids, [-1]))
        begins_W = tf.gather(starts, PARTITIONS * ids_W)
        sizes_W = tf.gather(starts, PARTITIONS * (ids_W + 1)) - begins_W
        is_first_W = tf.concat([tf.ones([1], tf.bool), ids_W[1:] != ids_W[:-1]], axis=0)
        sizes_W = tf.where(is_first_W, tf.cast(sizes_W, tf.int32), 0)
        return ids_W, begins_W, sizes_W, tf.cumsum(sizes_W)

    def _padded(self, count: int) -> int:
        """Return the number of rows that there is room for under XLA, for some ids."""
        longest = np.sort(self._sizes_V)[-count:]
        most = max(int(longest.sum()), 1)
        if self._usual_V is None:
            return most
        occurs_V = -np.expm1(count * np.log1p(-np.minimum(self._usual_V, 0.5)))
        mean = (self._sizes_V * occurs_V).sum()
        variance = (self._sizes_V**2 * occurs_V * (1 - occurs_V)).sum()
        return min(int(mean + _DEVIATIONS * np.sqrt(variance)) + 1, most)

    def lookups(self, ids: tf.Tensor | ListedRows) -> tf.Tensor | list[tf.Tensor]:
        """Return the rows of all unique ids, one list after the other, by partition.

        With padding all are one partition.

        Args:
            ids: Ids, or the result of `prepare`.
        """
        prepared = self.prepare(ids)
        if isinstance(prepared, ListedRows):
            return prepared.rows_N
        return self._read(unique(prepared)[0])

    def take_unique(self, ids: tf.Tensor | ListedRows, rows: Rows) -> Rows:
        """Return the vectors of the unique ids, float32, and the index of each id among them.

        Each unique vector is composed once. The gradient by a row is in float32.

        Args:
            ids: The ids that `lookups` was called with, M in all.
            rows: The rows of these lookups.
        """
        prepared = self.prepare(ids)
        if isinstance(prepared, ListedRows):
            _, places_N, shares_N, ids_W, inverse_W = prepared
            sums_WD = sum_segments(rows, shares_N, places_N, ids_W.shape[0])
            return Rows(sums_WD, inverse_W, ids_W)
        ids_W, inverse_M = unique(prepared)
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
        rows_N, starts = self._rows_N.read(), self._starts.read()
        with tf.device(HOST):  # elsewhere they would be copied as a whole
            return [
                tf.raw_ops.RaggedGather(
                    params_nested_splits=[starts],
                    params_dense_values=rows_N,
                    indices=PARTITIONS * ids_W + partition,
                    OUTPUT_RAGGED_RANK=1,
                ).output_dense_values
                for partition in range(PARTITIONS)
            ]

    def _splits(self, ids_W: tf.Tensor) -> list[tf.Tensor]:
        """Return where the list of each id begins in the results of `_read`, and the end, int64."""
        starts, first = self._starts.read(), tf.zeros([1], tf.int64)
        begins = [tf.gather(starts, PARTITIONS * ids_W + part) for part in range(PARTITIONS + 1)]
        return [
            tf.concat([first, tf.cumsum(end_W - begin_W)], axis=0)
            for begin_W, end_W in itertools.pairwise(begins)
        ]

    def _compose(self, ids_W: tf.Tensor, rows: Rows) -> tf.Tensor:
        """Return the vectors of the unique ids whose lists of rows were looked up, (W, D)."""
        with tf.device(HOST):
            starts = self._splits(ids_W)
            shares_W = tf.ones(tf.shape(ids_W))
            if self._is_mean:
                ends_W = tf.add_n(starts)
                shares_W = 1 / tf.cast(ends_W[1:] - ends_W[:-1], tf.float32)
            partitions = rows.partitions
            counts = [_count_rows(partition.inverse_N) for partition in partitions]
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


class SubwordRows(RowLists):
    """The rows of each word in a table of V words, then of buckets of n-grams, as in fastText.

    The vector of a word is the mean of its rows (`FastText::getWordVector` of fastText 0.9.2). A
    row that a word has twice counts twice.

    fastText makes a row for each bucket. Here a bucket that no word has is left out, because its
    row would never be trained: 67,371 words of Wikipedia have 293,080 of 2,000,000 buckets.

    Args:
        tokens: The V words.
        rule: The n-grams of a word.

    Attributes:
        buckets_N: The buckets that have a row, rising, (N,) int32. Row V + n is of `buckets_N[n]`.
    """

    def __init__(self, tokens: Sequence[str], rule: NgramRule):
        rows_N, starts, self.buckets_N = list_rows(tokens, rule)
        super().__init__(rows_N, starts, len(tokens) + len(self.buckets_N), is_mean=True)
