"""Changes of rows that are merged and packed, beside numpy."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from app.distributed.row_changes import (
    NO_ID,
    Block,
    Changes,
    Layout,
    damped_sum,
    damping,
    fill,
    fill_places,
    find_places,
    has_changed,
    merge,
    operations,
    row_bytes,
    send,
)

BLOCKS = [
    Block("", 5, "", tf.float32),
    Block("sum", 1, "sum", tf.float32),
    Block("mean", 5, "mean", tf.float32),
    Block("largest", 1, "largest", tf.float32),
]
LAYOUT = Layout(BLOCKS, part=2)
HALF = Layout([b._replace(dtype=tf.bfloat16) if b.width > 1 else b for b in BLOCKS], part=2)


def changes(ids, seed, layout=LAYOUT):
    """Random changes of some rows; those of the block "largest" are positive."""
    draw = np.random.default_rng(seed)
    values = [draw.normal(size=(len(ids), b.width)).astype(np.float32) for b in layout.blocks]
    values[3] = np.abs(values[3])
    every = [tf.cast(v, b.dtype) for v, b in zip(values, layout.blocks, strict=True)]
    return Changes(tf.constant(ids, tf.int32), every)


def filled(part, size):
    """Changes filled up to a size, with numbers that mean nothing."""
    missing = [[0, size - len(part.ids_N)], [0, 0]]
    values = [tf.pad(v, missing, constant_values=tf.constant(7, v.dtype)) for v in part.values]
    return Changes(fill(part.ids_N, size, NO_ID), values)


def joined(parts):
    """The changes of several replicas, as one gets them."""
    size = max([1, *(len(part.ids_N) for part in parts)])
    every = [filled(part, size) for part in parts]
    values = zip(*(part.values for part in every), strict=True)
    return Changes(
        tf.concat([part.ids_N for part in every], axis=0), [tf.concat(v, axis=0) for v in values]
    )


def merged(parts, layout, spare=0):
    """The merged changes of several replicas, and so many places more."""
    changes = joined(parts)
    places = find_places(changes.ids_N, len(parts))
    places = fill_places(places, tf.size(places.ids_M) + spare)
    return merge(changes, places, layout, tf.constant(4))


def by_id(part, block):
    """The change of each id."""
    pairs = zip(part.ids_N.numpy().tolist(), part.values[block].numpy(), strict=True)
    return {number: change for number, change in pairs if number != NO_ID}


@pytest.mark.parametrize("part", [0, 1, 2, 9])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_slots_merge_as_they_say(count, part):
    parts = [changes(ids, seed) for seed, ids in enumerate([[4, 2, 9], [2], [], [9, 2, 5]])][:count]
    result = merged(parts, LAYOUT._replace(part=part), spare=3)
    assert result.ids_N[-3:].numpy().tolist() == [NO_ID] * 3
    assert sorted(by_id(result, 0)) == sorted({i for p in parts for i in p.ids_N.numpy()})
    for block, make in ((1, np.sum), (2, np.mean), (3, np.max)):
        known = [by_id(part, block) for part in parts]
        for row, change in by_id(result, block).items():
            expected = make([of_part[row] for of_part in known if row in of_part], axis=0)
            np.testing.assert_allclose(change, expected, rtol=1e-6)


def test_no_changes_at_all():
    result = merged([changes([], 1), changes([], 2)], LAYOUT, spare=1)
    assert result.ids_N.numpy().tolist() == [NO_ID]
    assert [values.shape for values in result.values] == [(1, 5), (1, 1), (1, 5), (1, 1)]


def test_a_replica_that_only_looked_a_row_up_does_not_count():
    one = changes([3], 1)
    idle = Changes(one.ids_N, [tf.zeros_like(values) for values in one.values])
    result = merged([one, idle], LAYOUT)
    np.testing.assert_array_equal(result.values[0], one.values[0])
    np.testing.assert_array_equal(result.values[2], one.values[2])


@pytest.mark.parametrize("layout", [LAYOUT, HALF])
def test_what_is_sent_is_received(layout):
    """Two replicas of which each has changes for both."""
    ids = {"one": [7, 3, 2**31 - 1, NO_ID], "two": [0, NO_ID]}
    by_replica = [
        {name: changes(of_table, seed, layout) for name, of_table in ids.items()} for seed in (1, 2)
    ]
    layouts = dict.fromkeys(ids, layout)
    sent = [[], []]

    def note(replica):
        """An operation that notes what this replica sends to each."""
        return lambda values_RK, key: sent[replica].append(values_RK) or values_RK

    for replica, of_tables in enumerate(by_replica):
        send(of_tables, layouts, note(replica), itertools.count(), receivers=2)
    assert len(sent[0]) == operations(layouts) == 1 + 2 * 2
    both = iter(zip(*sent, strict=True))

    def distribute(values_RK, key):
        """The operation of replica 1: it gets row 1 of all."""
        return tf.stack([of_replica[1] for of_replica in next(both)])

    received = send(by_replica[1], layouts, distribute, itertools.count(), receivers=2)
    for name, part in received.items():
        half = len(ids[name]) // 2
        expected = [of_tables[name] for of_tables in by_replica]
        np.testing.assert_array_equal(part.ids_N, [*ids[name][half:]] * 2)
        for block, values in enumerate(part.values):
            assert values.dtype == layout.blocks[block].dtype
            np.testing.assert_array_equal(
                values, tf.concat([of_replica.values[block][half:] for of_replica in expected], 0)
            )
    sent_bytes = sum(int(tf.size(tensor)) * tensor.dtype.size for tensor in sent[0])
    assert sent_bytes == row_bytes(layout) * sum(map(len, ids.values()))


# Sums of the changes of replicas, beside what they must be for equal and independent changes.


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
