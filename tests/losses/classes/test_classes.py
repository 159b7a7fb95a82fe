"""Which words go together: cuts, sizes, and how classes are dealt over devices."""

import itertools

import numpy as np
import pytest

from app.losses.classes.classes import (
    RULES,
    assign_devices,
    expected_loads,
    expected_rows,
    partition,
)
from tests.losses.toy import counts

ZIPF = counts(1000)
every_rule = pytest.mark.parametrize("rule", RULES)


@every_rule
@pytest.mark.parametrize("levels", [2, 3])
@pytest.mark.parametrize("words", [1, 2, 3, 10, 1000])
@pytest.mark.parametrize("classes", [0, 1, 7, 1000])
def test_every_word_is_in_one_class_and_no_class_is_empty(rule, levels, words, classes):
    starts = partition(counts(words), levels, rule, min(classes, words))
    assert len(starts) == levels - 1
    rows = words
    for starts_G in reversed(starts):
        assert starts_G[0] == 0 and starts_G[-1] == rows
        assert (np.diff(starts_G) > 0).all()
        rows = len(starts_G) - 1


def test_classes_of_equal_size():
    (starts,) = partition(ZIPF, 2, "equal_size", 40)
    np.testing.assert_array_equal(np.diff(starts), 25)


def test_classes_of_equal_frequency():
    flat = np.sort(np.random.default_rng(0).integers(90, 110, 10_000))[::-1]
    (starts,) = partition(flat, 2, "equal_frequency", 50)
    shares = np.add.reduceat(flat / flat.sum(), starts[:-1])
    np.testing.assert_allclose(shares, 1 / 50, rtol=0.02)
    # A word that is more frequent than a class has a class of its own.
    (starts,) = partition(np.array([1000, 1, 1, 1, 1]), 2, "equal_frequency", 4)
    assert starts[1] == 1


def test_the_fewest_rows_have_classes_of_one_over_the_root_of_p():
    p = 1 / np.arange(1, 1_000_001)
    p /= p.sum()
    (starts,) = partition(p * 1e9, 2, "fewest_rows", round(np.sqrt(p).sum()))
    sizes = np.diff(starts)
    middle = p[(starts[:-1] + starts[1:]) // 2]
    wide = sizes >= 20  # where rounding to whole words means little
    np.testing.assert_allclose(sizes[wide], 1 / np.sqrt(middle[wide]), rtol=0.1)
    np.testing.assert_allclose(expected_rows(p * 1e9, [starts]), 2 * np.sqrt(p).sum(), rtol=0.02)
    others = [
        expected_rows(p * 1e9, partition(p * 1e9, 2, "fewest_rows", len(sizes) * factor))
        for factor in (0.5, 2)
    ]
    assert expected_rows(p * 1e9, [starts]) < min(others)


def test_a_step_of_many_targets_has_other_classes_than_one_of_few():
    few, many = (
        len(partition(counts(100_000), 2, "fewest_rows", targets=n)[0]) for n in (400, 40_000)
    )
    assert few > 3 * many  # few targets read rows, many score them


@pytest.mark.parametrize("levels", [2, 3])
def test_the_rule_for_the_fewest_rows_has_the_fewest(levels):
    rows = {rule: expected_rows(ZIPF, partition(ZIPF, levels, rule)) for rule in RULES}
    assert rows["fewest_rows"] < 0.95 * min(rows["equal_size"], rows["equal_frequency"])


def test_no_partition_of_few_words_touches_much_fewer_rows():
    few = np.array([50, 20, 10, 5, 3, 2, 1, 1])
    best = min(
        expected_rows(few, [np.array([0, *cut, 8])])
        for size in range(8)
        for cut in itertools.combinations(range(1, 8), size)
    )
    assert expected_rows(few, partition(few, 2, "fewest_rows")) <= 1.25 * best


def test_equal_counts_make_all_rules_the_same():
    cuts = [partition(np.full(100, 7), 2, rule)[0].tolist() for rule in RULES]
    assert cuts[0] == cuts[1] == cuts[2]


@every_rule
def test_words_never_seen_have_classes_too(rule):
    zeros = np.array([5, 3, 0, 0, 0, 0])
    assert partition(zeros, 2, rule)[0][-1] == 6
    assert np.isfinite(expected_rows(zeros, partition(zeros, 2, rule)))


def test_expected_rows_by_hand():
    # Classes {0}, {1, 2}: 2 rows of classes, and 1 or 2 of words.
    assert expected_rows(np.array([2, 1, 1]), [np.array([0, 1, 3])]) == 2 + 0.5 * 1 + 0.5 * 2
    assert expected_rows(np.array([2, 1, 1]), []) == 3


def test_expected_loads_are_those_of_drawn_targets():
    (starts,) = partition(ZIPF, 2, "fewest_rows")
    random = np.random.default_rng(0)
    drawn = random.choice(1000, size=(2000, 50), p=ZIPF / ZIPF.sum())
    group = np.searchsorted(starts, drawn, side="right") - 1
    touched = np.stack([(group == c).any(axis=1) for c in range(len(starts) - 1)])
    expected = expected_loads(ZIPF, starts, 50)
    np.testing.assert_allclose(expected, touched.mean(axis=1) * np.diff(starts), rtol=0.3, atol=1)
    rows = touched.mean(axis=1) @ np.diff(starts)
    np.testing.assert_allclose(expected.sum(), rows, rtol=0.02)
    np.testing.assert_allclose(expected_rows(ZIPF, [starts], 50), rows + len(starts) - 1, rtol=0.02)


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_dealt_loads_are_even(devices):
    (starts,) = partition(ZIPF, 2, "fewest_rows")
    device = assign_devices(ZIPF, starts, 400, devices)
    loads = np.bincount(device, expected_loads(ZIPF, starts, 400), minlength=devices)
    assert device.dtype == np.int32 and loads.max() < 1.02 * loads.mean()
