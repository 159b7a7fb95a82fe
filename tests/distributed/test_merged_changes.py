"""Sums of the changes of replicas, beside what they must be for equal and independent changes."""

import numpy as np
import pytest
import tensorflow as tf

from app.distributed.merged_changes import damped_sum, damping, has_changed

ROWS, COLUMNS = 2000, 8


def summed(changes, steps=2**20):
    """The damped sum of changes (R, M, D).

    After so many steps, the sum has no part in it.
    """
    parts = [tf.constant(part, tf.float32) for part in changes]
    return damped_sum(parts, damping(parts, tf.constant(steps))).numpy()


def drawn(shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize("replicas", [2, 4])
def test_equal_changes_of_many_rows_give_their_mean(replicas):
    one = drawn((ROWS, COLUMNS))
    found = summed(np.stack([one] * replicas))
    np.testing.assert_allclose(found, one, atol=0.04 * np.abs(one).max())


@pytest.mark.parametrize("replicas", [2, 4])
def test_independent_changes_are_added(replicas):
    changes = drawn((replicas, ROWS, COLUMNS))
    error = summed(changes) - changes.sum(axis=0)
    assert np.square(error).mean() < 0.04 * np.square(changes.sum(axis=0)).mean()


def test_only_the_direction_in_common_is_damped():
    """Whatever it is: here it is no column."""
    direction = np.ones(COLUMNS) / np.sqrt(COLUMNS)
    along = drawn((ROWS, 1)) * direction * 10
    apart = drawn((4, ROWS, COLUMNS), seed=2)
    apart -= (apart @ direction)[..., None] * direction
    error = summed(along + apart) - (along + apart.sum(axis=0))
    assert np.square(error).mean() < 0.04 * np.square(apart.sum(axis=0)).mean()


@pytest.mark.parametrize(("steps", "share"), [(1, 1.0), (2, 2 / 3), (7, 1 / 4)])
def test_after_few_steps_a_share_is_the_plain_sum(steps, share):
    changes = drawn((3, ROWS, COLUMNS)) + drawn((ROWS, COLUMNS), seed=2)
    damped, plain = summed(changes), changes.sum(axis=0)
    expected = share * plain + (1 - share) * damped
    np.testing.assert_allclose(summed(changes, steps), expected, rtol=1e-3, atol=1e-3)


def test_a_row_that_one_replica_changed_is_kept():
    changes = np.zeros((3, ROWS, COLUMNS))
    changes[0] = drawn((ROWS, COLUMNS))
    changes[1, 5:] = changes[0, 5:]
    found = summed(changes)
    np.testing.assert_array_equal(found[:5], changes[0, :5].astype(np.float32))
    np.testing.assert_allclose(found[5:], changes[0, 5:], atol=0.1)


def test_a_single_row():
    """Equal changes are damped less, as one row may be chance."""
    row = drawn((1, COLUMNS))
    np.testing.assert_allclose(summed(np.stack([row, row])), row * 4 / 3, rtol=1e-5)


@pytest.mark.parametrize("changes", [np.zeros((2, 3, 4)), np.zeros((2, 0, 4)), np.ones((1, 3, 4))])
def test_nothing_to_damp(changes):
    np.testing.assert_array_equal(summed(changes), changes.sum(axis=0))


@pytest.mark.parametrize("wrong", [np.inf, np.nan])
def test_a_change_that_is_not_finite_is_seen_in_the_sum(wrong):
    changes = drawn((2, 3, 4))
    changes[0, 1, 2] = wrong
    found = summed(changes)
    np.testing.assert_allclose(found[[0, 2]], changes.sum(axis=0)[[0, 2]], rtol=1e-5)
    assert not np.isfinite(found[1, 2])


def test_rows_that_were_only_looked_up():
    values = tf.constant([[0.0, 0.0], [0.0, 2.0]])
    np.testing.assert_array_equal(has_changed(values), [[0.0], [1.0]])
