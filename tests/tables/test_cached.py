from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from app.tables.cached import Places, StagedTable
from app.tables.device import DeviceTable
from app.tables.initial import Uniform

ROWS, COLUMNS, COLD = 30, 3, 8
HOT = np.array([0, 3, 7])


def chunks(number=40, seed=0):
    """Distinct ids of chunk after chunk, of which at most COLD are cold; some share ids."""
    random = np.random.default_rng(seed)
    for _ in range(number):
        ids = random.choice(ROWS, random.integers(0, COLD + 1), replace=False)
        yield np.append(ids, random.choice(HOT, 1)).astype(np.int32)


@pytest.fixture
def places():
    return Places(ROWS, HOT, COLD)


def test_every_id_of_a_chunk_has_a_place_of_its_own(places):
    where = {int(id): place for place, id in enumerate(HOT)}
    for ids in chunks():
        ids = places.cold_of(ids)
        assert not np.isin(HOT, ids).any()
        moves = places.moves(ids)
        for id, place in zip(moves.leaving_N, moves.left_N, strict=True):
            assert where.pop(int(id)) == place and id not in ids and id not in HOT
        for id, place in zip(moves.entering_M, moves.taken_M, strict=True):
            assert id not in where and place not in where.values()
            where[int(id)] = place
        places.make(moves, ids)
        assert set(ids.tolist()) <= where.keys()
        assert len(places.missing(ids)) == 0
        assert max(where.values()) < len(HOT) + COLD


def test_cold_ids_are_those_that_are_not_hot(places):
    ids = np.array([0, 1, 7, 7, 9, 9, 3])
    for hot_N, cold in ((HOT, [1, 9, 9]), (np.arange(4), [7, 7, 9, 9])):
        places = Places(ROWS, hot_N, COLD)
        assert places.cold_of(ids).tolist() == cold
        places.make(places.moves(np.array([9])), np.array([9]))
        assert places.cold_of(ids).tolist() == cold


def test_those_leave_that_were_needed_the_longest_ago(places):
    for ids in ([10, 11, 12, 13], [14, 15, 16, 17], [10, 12]):
        places.make(places.moves(np.array(ids)), np.array(ids))
    moves = places.moves(np.array([20, 21, 14, 20]))
    assert sorted(moves.leaving_N) == [11, 13] and moves.entering_M.tolist() == [20, 21]


def test_moves_alone_change_nothing(places):
    ids = np.array([9, 9, 20])
    assert places.missing(ids).tolist() == [9, 9, 20]
    one, other = places.moves(ids), places.moves(ids)
    assert all((a == b).all() for a, b in zip(one, other, strict=True))
    assert places.missing(ids).tolist() == [9, 9, 20]


def test_too_many_ids_for_the_places(places):
    assert places.moves(np.arange(8, 8 + COLD)) is not None
    assert places.moves(np.arange(8, 8 + COLD + 1)) is None


def make_home(dtype=tf.float32):
    home = DeviceTable(ROWS, COLUMNS, Uniform(1.0, 5), dtype, "stochastic", seed=3)
    home.slot("accumulator", 1, 0.5)
    return home


def change(table, ids, number):
    """Rows and slots become what only right rows give."""
    table.assign(ids, table.gather(ids) * 1.1 + number)
    slot = table.slot("accumulator", 1, 0.5)
    slot.assign(ids, slot.gather(ids) + tf.cast(ids, tf.float32)[:, tf.newaxis])
    table.add(ids, tf.ones((len(ids), COLUMNS)))


def assert_same_bits(one, other):
    for a, b in ((one, other), (one.slots["accumulator"], other.slots["accumulator"])):
        assert a.values.numpy().tobytes() == b.values.numpy().tobytes()


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_rows_are_those_of_a_table_in_one_place_bit_for_bit(dtype):
    home, plain = make_home(dtype), make_home(dtype)
    table, places = StagedTable(home, "CPU:0"), Places(ROWS, HOT, COLD)
    table.slot("accumulator", 1, 0.5)
    table.open(places)
    for number, ids in enumerate(chunks()):
        moves = places.moves(places.cold_of(ids))
        places.make(moves, places.cold_of(ids))
        table.write(moves.leaving_N, table.move(moves, table.read(moves.entering_M)))
        for wanted in (table, plain):
            change(wanted, tf.constant(np.unique(ids)), number)
        if number % 7 == 0:
            table.write_all()
            assert_same_bits(home, plain)
    table.write_all()
    assert_same_bits(home, plain)


def test_a_row_without_a_place_is_refused():
    table, places = StagedTable(make_home(), "CPU:0"), Places(ROWS, HOT, COLD)
    table.open(places)
    with tf.device("CPU:0"), pytest.raises(tf.errors.InvalidArgumentError):
        table.gather(tf.constant([9]))


def test_bytes_are_those_on_the_device():
    table = StagedTable(make_home(), "CPU:0")
    table.slot("accumulator", 1, 0.5)
    table.open(Places(ROWS, HOT, COLD))
    assert table.bytes() == (len(HOT) + COLD) * (COLUMNS + 1) * 4
    assert table.row_bytes() == (COLUMNS + 1) * 4
    assert table.is_finite()
