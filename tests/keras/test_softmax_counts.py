"""Counts of an output layer: their order, their form in a config, and Zipf's law without them."""

from __future__ import annotations

import numpy as np
import pytest

from app.keras.layers import softmax_base


@pytest.mark.parametrize(
    "counts", [[5], [0, 0], [3, 9, 9, 0, 2**40], np.random.default_rng(0).zipf(1.5, 1000)]
)
def test_counts_come_back_from_their_packed_form(counts):
    given = softmax_base.checked_counts(counts, len(counts), "out")
    assert given.dtype == np.int64
    text = softmax_base.packed_counts(given)
    assert isinstance(text, str)
    np.testing.assert_array_equal(softmax_base.unpacked_counts(text, len(given)), given)


def test_sorted_counts_are_packed_small():
    counts = (10**9 / np.arange(1, 100_001)).astype(np.int64)
    assert len(softmax_base.packed_counts(counts)) < 250_000  # of 800,000 bytes


def test_ranks_are_by_descending_count_and_the_lower_id_first():
    counts = np.array([2, 7, 2, 9, 7])
    order = softmax_base.order_by_count(counts)
    np.testing.assert_array_equal(order, [3, 1, 4, 0, 2])
    np.testing.assert_array_equal(softmax_base.ranks_of(order), [3, 1, 4, 0, 2])
    np.testing.assert_array_equal(softmax_base.ranks_of(np.array([2, 0, 1])), [1, 2, 0])
    assert order.dtype == np.int32


@pytest.mark.parametrize("counts", [[4], [3, 3], [9, 5, 5, 0]])
def test_counts_that_are_in_order_need_no_ranks(counts):
    assert softmax_base.order_by_count(np.array(counts)) is None


def test_without_counts_words_follow_zipfs_law():
    np.testing.assert_allclose(softmax_base.zipf_counts(4), [4, 2, 4 / 3, 1])
