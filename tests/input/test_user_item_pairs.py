"""Which pairs are trained on and which are scored, and the batches of an epoch."""

import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf

from app.errors import UsageError
from app.input.ratings import Ratings
from app.input.user_item_pairs import (
    count_batches,
    make_batches,
    split_pairs,
    weigh,
)
from app.settings import InputConfig, RatingsConfig
from app.settings.checks import make_config
from app.settings.config import RunConfig

SETTINGS = InputConfig(batch_tokens=4, steps_per_call=3)


def how(min_count=1, heldout_share=0.0, **settings):
    return RatingsConfig(**settings), heldout_share, min_count, RunConfig().seed


def ratings(rows):
    """From a user, an item, a rating and a time, each a letter or a number."""
    users, items, *others = zip(*rows, strict=True)
    user_keys, item_keys = list(dict.fromkeys(users)), list(dict.fromkeys(items))
    others = [np.array(part) for part in others] + [None] * (2 - len(others))
    return Ratings(
        user_keys,
        item_keys,
        np.array([user_keys.index(user) for user in users], np.int32),
        np.array([item_keys.index(item) for item in items], np.int32),
        *others,
        "",
    )


def named(found):
    return [
        found.user_keys[user] + found.item_keys[item]
        for user, item in zip(found.users_N, found.items_N, strict=True)
    ]


def test_ids_are_by_descending_count():
    found = split_pairs(ratings(["ax", "by", "bx", "bz", "cz", "cx"]), None, *how())
    assert found.users.tokens == ["b", "c", "a"] and found.users.counts.tolist() == [3, 2, 1]
    assert found.items.tokens == ["x", "z", "y"]
    assert named(found.train) == ["ax", "by", "bx", "bz", "cz", "cx"]
    assert found.known.starts_U.tolist() == [0, 3, 5, 6]
    assert found.known.items_N.tolist() == [0, 1, 2, 0, 1, 0]


def test_rare_users_and_items_are_left_out():
    rows = ["ax", "ay", "bx", "by", "cz", "cw", "dz"]  # without w and d, c and z have one pair
    found = split_pairs(ratings(rows), None, *how(min_count=2))
    assert named(found.train) == ["ax", "ay", "bx", "by", "cz"]
    found = split_pairs(ratings(["ax", "ay", "bz", "bw"]), ratings(["ay"]), *how())
    assert found.left_out == 1
    found = split_pairs(ratings(["ax", "bx", "ay", "cw", "cv"]), None, *how(min_count=2))
    assert found.users.tokens == ["a"]  # c has two pairs, of items that have one


def test_a_repeated_pair_counts_once():
    rows = [("a", "x", 1.0, 9), ("b", "x", 2.0, 1), ("a", "x", 5.0, 3), ("a", "x", 2.0, 9)]
    found = split_pairs(ratings(rows), None, *how())
    assert named(found.train) == ["bx", "ax"] and found.repeated == 2
    assert found.train.ratings_N.tolist() == [2, 2]  # the last by time, then in the file
    found = split_pairs(ratings(rows), None, *how(weighted=True))
    assert found.train.ratings_N.tolist() == [2, 8]
    found = split_pairs(ratings([row[:3] for row in rows]), None, *how(min_rating="2"))
    assert found.train.ratings_N.tolist() == [2, 2] and found.repeated == 1


def test_disliked_items_stay_and_do_not_count():
    rows = [("a", "x", 5.0), ("a", "y", 1.0), ("b", "x", 4.0), ("b", "z", 2.0), ("c", "y", 1.0)]
    rows += [("b", "y", 5.0), ("a", "v", 3.0), ("b", "v", 4.0)]
    given = ratings(rows)
    found = split_pairs(given, given, *how(min_rating="4"), disliked_below=2.5)
    assert named(found.train) == ["ax", "ay", "bx", "by", "bv"]  # nobody likes z, and c likes none
    assert found.disliked_N.tolist() == [False, True, False, False, False]
    assert found.items.counts.tolist() == [2, 1, 1] and named(found.liked) == [
        "ax",
        "bx",
        "by",
        "bv",
    ]
    assert np.diff(found.known.starts_U).tolist() == [3, 2]  # b likes most
    assert not len(found.heldout.users_N)
    assert weigh(found, False).tolist() == [1, -1, 1, 1, 1]
    found = split_pairs(given, given, *how(min_rating="4", weighted=True), disliked_below=2.5)
    assert weigh(found, True).tolist() == [5, -1.5, 4, 5, 4]
    assert found.disliked_N.tolist() == [False, True, False, False, False]
    for share in (0.2, 0.4):
        held = split_pairs(given, None, *how(heldout_share=share), disliked_below=2.5).heldout
        assert not {"ay", "bz", "cy"} & {*named(held)}
    plain = split_pairs(given, None, *how())
    assert plain.disliked_N is None and weigh(plain, False) is None


@pytest.mark.parametrize(
    ("rated", "below", "weight"),
    [
        ([2.0, 2.0], 3, -2),  # two low ratings are no high one
        ([4.0, 2.0], 3, 3),
        ([-2.0, 1.5], 0, -0.5),
        ([-2.0, 1.5], -1, 0.5),
        ([1.0, -1.0], 0, None),
    ],
)
def test_repeated_pairs_of_weights_add_up(rated, below, weight):
    given = ratings([("a", "x", one) for one in rated] + [("a", "y", 5.0), ("b", "x", 5.0)])
    if weight is None:
        with pytest.raises(UsageError, match="--weighted: the weights of user 'a' with item 'x'"):
            split_pairs(given, None, *how(weighted=True), disliked_below=below)
        return
    found = split_pairs(given, None, *how(weighted=True), disliked_below=below)
    by_name = dict(zip(named(found.train), weigh(found, True).tolist(), strict=True))
    assert by_name == {"ax": weight, "ay": 5, "bx": 5}
    assert named(found.liked) == ["ax"] * (weight > 0) + ["ay", "bx"]


def test_users_and_items_of_which_only_features_are_known_come_last():
    found = split_pairs(
        ratings(["ax", "bx", "ay"]), ratings(["az", "by"]), *how(),
        described=(None, {"z": ["f"], "x": ["f", "g"], "new": ["g", "h"]}),
    )  # fmt: skip
    assert found.items.tokens == ["x", "y", "new", "z"]
    assert found.items.counts.tolist() == [2, 1, 0, 0]
    assert found.features.users is None and found.features.items.names.tokens == ["f", "g"]
    assert named(found.heldout) == ["az", "by"] and found.left_out == 0


def test_splits():
    rows = [(user, item, 1.0, time) for time, (user, item) in enumerate(["ax", "ay", "by", "cx"])]
    rows += [("c", "y", 1.0, -1), ("c", "z", 1.0, 2)]
    found = split_pairs(ratings(rows), None, *how(split="leave_one_out", heldout_share=0.1))
    assert named(found.heldout) == ["ay", "cx"] and found.left_out == 0  # b has a single one
    found = split_pairs(ratings(rows), None, *how(split="leave_one_out"))
    assert not named(found.heldout)  # as of a share of 0
    found = split_pairs(ratings(rows), None, *how(split="time", heldout_share=0.5))
    # The latest are by, cx, cz: of b nothing is left to train on, and of z.
    assert named(found.heldout) == ["cx"] and found.left_out == 2
    assert found.users.tokens == ["a", "c"]


def test_a_random_split_is_the_same_every_time():
    rows = [(str(user), str(item)) for user in range(9) for item in range(9)]
    one, other = (split_pairs(ratings(rows), None, *how(heldout_share=0.3)) for _ in range(2))
    assert len(one.heldout.users_N) == round(0.3 * 81) and one.left_out == 0
    assert named(one.heldout) == named(other.heldout)
    assert sorted(named(one.heldout) + named(one.train)) == sorted(map("".join, rows))


def test_pairs_held_out_of_nobody_known():
    given = ratings(["ay", "ax", "by", "nx", "an", "ay"])
    found = split_pairs(ratings(["ax", "by", "bx"]), given, *how())
    assert named(found.heldout) == ["ay"] and found.left_out == 5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"split": "time", "heldout_share": 0.5}, "the pairs have no times"),
        ({"min_rating": "3"}, "the pairs have no ratings"),
        ({"min_count": 3}, "no pair is left to train on"),
        ({"min_count": 3, "split": "leave_one_out", "heldout_share": 0.5}, "no pair is left"),
    ],
)
def test_what_is_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        split_pairs(ratings(["ax", "by"]), None, *how(**settings))
    for text in ("good", "nan"):
        with pytest.raises(UsageError, match=f"--min_rating={text}: '{text}' is no number; give"):
            make_config({"task": "recommend", "corpus": "a", "min_rating": text})


def found_in(batches, epochs, first=0):
    return [(epoch, [part.numpy() for part in data]) for epoch, data in batches(epochs, first)]


def test_an_epoch_has_every_pair_once():
    rows = [(f"u{n % 7}", f"i{n % 5}", float(n), n) for n in range(29)]
    given = split_pairs(ratings(rows), None, *how()).train
    batches = make_batches(given, None, 3, SETTINGS)
    calls = found_in(batches, range(2))
    assert [epoch for epoch, _ in calls] == [0] * 3 + [1] * 3
    assert count_batches(29, SETTINGS) == 3
    codes = list(zip(given.users_N, given.items_N, given.ratings_N, strict=True))
    orders = []
    for epoch in range(2):
        columns = [
            np.concatenate([data[place] for of, data in calls if of == epoch]).ravel()
            for place in range(4)
        ]
        assert columns[0].shape == (36,) and calls[0][1][0].shape == (3, 4)
        real = columns[3] > 0
        assert real.tolist() == [True] * 29 + [False] * 7
        order = list(zip(*(column[real] for column in columns[:3]), strict=True))
        assert collections.Counter(order) == collections.Counter(codes)
        # What fills up is the last pair, so that no other row is looked up.
        assert {part[28] for part in columns[:1]} == set(columns[0][29:])
        orders.append(order)
    assert orders[0] != orders[1]
    for (epoch, one), (other_epoch, other) in zip(
        found_in(batches, range(2), 2), calls[2:], strict=True
    ):
        assert epoch == other_epoch
        np.testing.assert_array_equal(one, other)


def test_pairs_of_a_user_come_together():
    rows = [(f"u{n % 3}", f"i{n}") for n in range(23)]  # 8, 8 and 7 pairs
    given = split_pairs(ratings(rows), None, *how()).train
    orders = []
    for _, (users, items, _, weights) in found_in(
        make_batches(given, None, 3, SETTINGS, user_pairs=4), range(2)
    ):
        orders.append(list(zip(users.ravel(), items.ravel(), weights.ravel(), strict=True)))
    for order in (orders[0] + orders[1], orders[2] + orders[3]):
        real = [(user, item) for user, item, weight in order if weight]
        assert sorted(real) == sorted(zip(given.users_N, given.items_N, strict=True))
        runs = [len(list(run)) for _, run in itertools.groupby(real, lambda pair: pair[0])]
        assert sum(size % 4 for size in runs) in (3, 3 + 4) and len(runs) <= 6
    groups = [{frozenset(p[1] for p in o[n : n + 4]) for n in (0, 4)} for o in orders[::2]]
    assert groups[0] != groups[1]  # drawn anew each epoch


def test_the_rating_may_be_the_weight():
    given = split_pairs(ratings([("a", "x", 3.0), ("b", "x", 2.0)]), None, *how()).train
    ((_, data),) = make_batches(given, given.ratings_N, 3, SETTINGS)(range(1), 0)
    assert sorted(data.weights.numpy().ravel())[-3:] == [0, 2, 3]
    assert data.users.shape == (3, 4) and data.users.dtype == tf.int32
