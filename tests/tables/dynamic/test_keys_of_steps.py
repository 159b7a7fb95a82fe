"""Keys that are seen over several steps at once, and calls that a map refuses."""

from __future__ import annotations

import numpy as np
import pytest

from app.errors import RunError
from app.tables.dynamic.keys import KeyMap
from tests.tables.dynamic.test_keys import contents, see


@pytest.mark.parametrize("policy", [{}, {"min_sightings": 2}])
def test_what_cannot_be_leaves_the_map_as_it_was(policy):
    keys, other = KeyMap(3, **policy), KeyMap(3, **policy)
    for each in (keys, other):
        see(each, [1, 2], 1, [2, 5])
        see(each, [8], 2)
    with pytest.raises(RunError, match="3 rows are full and"):
        see(keys, [2, 4, 5, 6], 3, [7, 2, 2, 2])
    assert keys.step == 2 and contents(keys) == contents(other)
    for each in (keys, other):
        see(each, [4, 8, 9], 4, [1, 1, 1])
    assert contents(keys) == contents(other)


def test_keys_of_several_steps_stay_together():
    """Those that a later step needs do not give way to those that an earlier one brings."""
    keys = KeyMap(4, max_age=8)
    see(keys, [1, 2, 3], 1, [9, 1, 1])
    counts = np.array([1, 1, 3])
    found = keys.see(np.array([7, 2, 8]), counts, 4, np.array([2, 4, 3]))
    assert found.evicted_rows.tolist() == [2] and found.rows_U.tolist() == [2, 1, 3]
    assert contents(keys) == {0: [1, 9, 3], 1: [2, 2, 0], 2: [7, 1, 2], 3: [8, 3, 1]}
    with pytest.raises(RunError, match="only 4 were not just used"):
        keys.see(np.arange(20, 25), np.ones(5, int), 9, np.array([9, 8, 7, 6, 5]))
    found = keys.see(np.array([7, 30]), np.array([1, 1]), 13, np.array([5, 13]))
    assert found.evicted_rows.tolist() == [0, 1, 3]  # seen 12, 9 and 10 steps ago
    assert contents(keys) == {0: [30, 1, 0], 2: [7, 2, 8]}


def test_nothing_seen_moves_the_map_on():
    keys = KeyMap(4, max_age=8)
    see(keys, [1], 1)
    none = np.zeros(0, np.int64)
    found = keys.see(none, none, 2, none)
    assert (found.rows_U.dtype, found.rows_U.shape) == (np.int64, (0,)) and keys.step == 2
    assert see(keys, [], 20).evicted_rows.tolist() == [0] and len(keys) == 0


@pytest.mark.parametrize("policy", [{"max_age": 2**31}, {"max_age": 2**31, "pinned": 1}])
def test_an_age_of_more_steps_than_there_will_be(policy, tmp_path):
    keys = KeyMap(4, **policy)
    see(keys, [1, -1], 1)
    assert not len(see(keys, [2], 2**31).evicted_rows)
    keys.save(tmp_path / "keys")
    other = KeyMap(4, **policy)
    other.load(tmp_path / "keys")
    for each in (keys, other):
        assert not len(see(each, [2], 2**31 + 1).evicted_rows)
        late = 2**31 + 2**28  # by an eighth
        assert see(each, [2], late).evicted_rows.tolist() == [0, 1]


def test_any_number_is_a_key():
    keys = KeyMap(6)
    names = np.array([-1, 0, 2**63 - 1, -(2**63)])
    assert keys.see(names, np.ones(4, int), 1).rows_U.tolist() == [0, 1, 2, 3]
    assert keys.see(names[:1], np.ones(1, int), 2).rows_U.tolist() == [0]
    assert keys.rows(np.array([-1, -1, -2])).tolist() == [0, 0, -1]
