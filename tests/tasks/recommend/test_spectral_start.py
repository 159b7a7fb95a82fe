"""Vectors to start from against the singular vectors of the dense matrix."""

import numpy as np
import pytest
import tensorflow as tf

from app.input.ratings import Ratings
from app.tables.initial import FirstColumns, LastColumn, Uniform
from app.tasks.recommend.spectral_start import spectral_vectors, when_needed

USERS, ITEMS = 60, 40


def pairs(density=0.2):
    random = np.random.default_rng(0)
    chosen = random.random((USERS, ITEMS)) < density
    chosen[np.arange(USERS), np.arange(USERS) % ITEMS] = True  # each user and item has a pair
    users, items = (part.astype(np.int32) for part in np.nonzero(chosen))
    ratings = random.integers(1, 6, len(users)).astype(np.float32)
    return Ratings([], [], users, items, ratings, None, "")


@pytest.mark.parametrize("weighted", [False, True])
def test_the_largest_singular_vectors_are_found(weighted):
    given = pairs()
    matrix = np.zeros((USERS, ITEMS))
    matrix[given.users_N, given.items_N] = given.ratings_N if weighted else 1
    matrix /= np.sqrt(matrix.sum(axis=1, keepdims=True) * matrix.sum(axis=0))
    left, values, right = np.linalg.svd(matrix)
    expected = [part[:, :30] * np.sqrt(values[:30]) for part in (left, right.T)]
    found = spectral_vectors(given, (USERS, ITEMS), weighted, 30, 1)
    for part, wanted in zip(found, expected, strict=True):
        wanted = wanted / np.linalg.norm(wanted, axis=1, keepdims=True)
        # Up to the sign of each column, which the products of two rows leave out.
        np.testing.assert_allclose(part @ part.T, wanted @ wanted.T, atol=2e-3)
        assert part.dtype == np.float32
    again = spectral_vectors(given, (USERS, ITEMS), weighted, 30, 1)
    for one, other in zip(found, again, strict=True):
        np.testing.assert_array_equal(one, other)


def test_more_columns_than_the_matrix_has():
    """As of two blocks: of rank 2, and with fewer users than columns."""
    users, items = np.divmod(np.arange(12, dtype=np.int32), 3)
    items = 3 * (users % 2) + items
    blocks = Ratings([], [], users, items.astype(np.int32), None, None, "")
    by_user, by_item = spectral_vectors(blocks, (4, 6), False, 64, 1)
    assert by_user.shape == (4, 4) and by_item.shape == (6, 4)
    inner = by_user @ by_item.T
    is_pair = np.arange(4)[:, None] % 2 == np.arange(6) // 3
    assert inner[is_pair].min() > inner[~is_pair].max() + 0.5


@pytest.mark.slow
def test_vectors_are_computed_when_a_row_is_made_first():
    made = []

    def compute():
        made.append(1)
        return np.ones((3, 2), np.float32), np.full((4, 2), 7, np.float32)

    start = when_needed(compute)
    random = Uniform(0.5, 1)
    initial = LastColumn(FirstColumns(lambda: start()[1], random), tf.range(4.0))
    assert not made
    graph = tf.function(lambda ids: initial.rows(ids, 4))(tf.constant([2, 0, 2]))
    whole = initial((4, 4)).numpy()
    np.testing.assert_array_equal(graph, whole[[2, 0, 2]])
    np.testing.assert_array_equal(whole[:, :2], np.full((4, 2), 7))
    np.testing.assert_array_equal(whole[:, 2], random.rows(tf.range(4), 3)[:, 2])
    np.testing.assert_array_equal(whole[:, 3], range(4))
    assert made == [1]
