"""Words as means of rows: the row of the word and the rows of its character n-grams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ..tables.device import host_variable
from ..tables.row_reads import unique
from ..text.subwords import hash_words
from ..types import HOST, NgramRule, Rows
from .averages import average

# The rows of even and of odd ids are groups of their own. Reading, adding and writing rows are long
# operations of one core each, so two groups keep two cores busy. See data/benchmarks/README.md.
GROUPS = 2


class _Lists(NamedTuple):
    """The rows of each word that are in one group.

    Attributes:
        rows_N: The rows, one word after the other, int32.
        starts: Where the list of each word begins, and the end, (V + 1,) int64.
        sizes_V: The length of each list, int64.
    """

    rows_N: tf.Variable
    starts: tf.Variable
    sizes_V: tf.Variable

    def read(self, words_W: tf.Tensor) -> tf.Tensor:
        """Return the rows of words, one list after the other, int32."""
        with tf.device(self.rows_N.device):  # elsewhere it would be copied as a whole
            return tf.raw_ops.RaggedGather(
                params_nested_splits=[self.starts],
                params_dense_values=self.rows_N,
                indices=words_W,
                OUTPUT_RAGGED_RANK=1,
            ).output_dense_values

    def splits(self, words_W: tf.Tensor) -> tf.Tensor:
        """Return where the list of each word begins in the result of `read`, and the end, int64."""
        with tf.device(HOST):
            ends_W = tf.cumsum(tf.gather(self.sizes_V, words_W))
            return tf.concat([tf.zeros([1], tf.int64), ends_W], axis=0)


class SubwordRows:
    """The rows of each word in a table of V words, then of buckets of n-grams, as in fastText.

    The vector of a word is the mean of its rows (`FastText::getWordVector` of fastText 0.9.2). A
    row that a word has twice counts twice. The lists of rows are in the memory of the host.

    fastText makes a row for each bucket. Here a bucket that no word has is left out, because its
    row would never be trained: 67,371 words of Wikipedia have 293,080 of 2,000,000 buckets.

    Args:
        tokens: The V words.
        rule: The n-grams of a word.
        has_all_buckets: Whether the table has a row for each bucket nevertheless, as tables of
            fastText and of earlier versions.

    Attributes:
        buckets_N: The buckets that have a row, rising, (N,) int32. Row V + n is of `buckets_N[n]`.
    """

    def __init__(self, tokens: Sequence[str], rule: NgramRule, has_all_buckets: bool = False):
        self.has_all_buckets = has_all_buckets
        ngrams, words_V = hash_words(tokens, rule), np.arange(len(tokens), dtype=np.int32)
        if has_all_buckets:
            self.buckets_N, places_M = np.arange(rule.buckets, dtype=np.int32), ngrams.buckets_N
        else:
            self.buckets_N, places_M = np.unique(ngrams.buckets_N, return_inverse=True)
        starts = ngrams.starts + np.arange(len(tokens) + 1)
        is_word_N = np.zeros(starts[-1], bool)
        is_word_N[starts[:-1]] = True
        rows_N = np.empty(starts[-1], np.int32)
        rows_N[is_word_N], rows_N[~is_word_N] = words_V, places_M + len(tokens)
        owners_N = np.repeat(words_V, np.diff(starts))
        self._sizes_V = host_variable(np.diff(starts).astype(np.float32))
        self._lists = []
        for group in range(GROUPS):
            of_group_N = rows_N % GROUPS == group
            counts_V = np.bincount(owners_N[of_group_N], minlength=len(tokens))
            ends = np.concatenate([[0], np.cumsum(counts_V)])
            self._lists.append(_Lists(*map(host_variable, (rows_N[of_group_N], ends, counts_V))))

    def lookups(self, words: tf.Tensor) -> list[tf.Tensor]:
        """Return the rows of all unique words, one list after the other, in `GROUPS` groups."""
        return self._read(unique(words)[0])

    def take_unique(self, words: tf.Tensor, rows: Rows) -> Rows:
        """Return the vectors of the unique words, float32, and the index of each word among them.

        Each unique word is composed once. The gradient by a row is in float32.

        Args:
            words: The words that `lookups` was called with, M in all.
            rows: The rows of these lookups.
        """
        words_W, inverse_M = unique(words)
        return Rows(self._compose(words_W, rows), inverse_M)

    def compose(self, words_W: tf.Tensor, gather: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
        """Return the vectors of unique words, (W, D) float32.

        Args:
            gather: Takes ids of rows (U,), returns the rows (U, D) float32.
        """
        groups = [unique(ids_N) for ids_N in self._read(words_W)]
        rows = [Rows(gather(ids_U), inverse_N) for ids_U, inverse_N in groups]
        return self._compose(words_W, Rows(None, None, groups=rows))

    def _read(self, words_W: tf.Tensor) -> list[tf.Tensor]:
        """Return the rows of words in each group, one list after the other, int32."""
        return [lists.read(words_W) for lists in self._lists]

    def _compose(self, words_W: tf.Tensor, rows: Rows) -> tf.Tensor:
        """Return the vectors of the unique words whose lists of rows were looked up, (W, D)."""
        with tf.device(HOST):
            starts = [lists.splits(words_W) for lists in self._lists]
            shares_W = 1 / tf.gather(self._sizes_V, words_W)
            groups, counts = rows.groups, [_count_rows(group.inverse_N) for group in rows.groups]
            if not groups:  # all rows are one lookup
                inverses = tf.split(rows.inverse_N, [of_group[-1] for of_group in starts])
                groups = [Rows(rows.values_UD, inverse_N) for inverse_N in inverses]
                counts = [_count_rows(rows.inverse_N)] * GROUPS
        by_group = zip(groups, counts, starts, strict=True)
        return tf.add_n([_weigh_lists(*of_group, shares_W) for of_group in by_group])


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
    return average(rows.values_UD, entries_N2, shares_N, count, words)
