import json

import numpy as np
import pytest
import tensorflow as tf

from app.tables import sharded
from app.tables.base import Slot
from app.tables.device import DeviceTable
from app.tables.initial import Constant, Uniform
from tests.integration.commands import fresh

ROWS, COLUMNS = 11, 3
VALUES = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)


def by_hand(shape):
    return tf.constant(VALUES)


def drawn(shape):
    return tf.random.stateless_normal(shape, [3, 5])


def make(parts=3, initial=by_hand, rows=ROWS, **options):
    return sharded.make(rows, COLUMNS, initial, ["CPU:0"] * parts, **options)


def all_rows(table):
    return table.gather(tf.range(table.rows)).numpy()


@pytest.fixture
def table():
    return make(slots={"accumulator": Slot(1, 0.5)})


@pytest.mark.parametrize("wrong", [-1, ROWS, ROWS + 1, 1000])
def test_an_id_out_of_range_is_refused_on_a_cpu(wrong):
    with pytest.raises(tf.errors.InvalidArgumentError):
        make().gather(tf.constant([1, wrong]))


@pytest.mark.parametrize("initial", [Uniform(0.5, 3), Constant(0.25), tf.zeros, by_hand, drawn])
def test_it_starts_as_a_table_on_one_device(initial):
    for dtype in (tf.float32, tf.bfloat16):
        expected = DeviceTable(ROWS, COLUMNS, initial, dtype)
        found = make(initial=initial, dtype=dtype)
        assert all_rows(found).tobytes() == all_rows(expected).tobytes()


def test_fewer_rows_than_devices():
    table = make(parts=4, rows=2, initial=tf.ones)
    np.testing.assert_array_equal(table.gather(tf.constant([1, 0])), np.ones((2, COLUMNS)))
    assert table.is_finite()


def test_slots_are_spread_likewise(table):
    slot = table.slots["accumulator"]
    assert (slot.rows, slot.columns, slot.device) == (ROWS, 1, table.device)
    assert [part.rows for part in slot.parts] == [part.rows for part in table.parts]
    np.testing.assert_array_equal(all_rows(slot), np.full((ROWS, 1), 0.5))
    assert table.bytes() == ROWS * (COLUMNS + 1) * 4


def test_a_checkpoint_holds_each_part_once_with_its_slots(table, tmp_path):
    table.slots["accumulator"].assign(tf.constant([4]), tf.constant([[7.0]]))
    path = tf.train.Checkpoint(table=table).write(str(tmp_path / "saved"))
    shapes = tf.train.load_checkpoint(path).get_variable_to_shape_map()
    assert len([shape for shape in shapes.values() if shape]) == 2 * len(table.parts)
    other = make(initial=tf.zeros, slots={"accumulator": Slot(1, 0.0)})
    slot = other.slots["accumulator"]
    tf.train.Checkpoint(table=other).read(path).assert_consumed()
    np.testing.assert_array_equal(all_rows(other), VALUES)
    np.testing.assert_array_equal(all_rows(slot)[:, 0], [7 if n == 4 else 0.5 for n in range(ROWS)])


def test_parts_are_stored_and_rounded_as_asked_each_with_draws_of_its_own():
    options = {"dtype": tf.bfloat16, "rounding": "stochastic", "slot_dtype": tf.float16, "seed": 3}
    table = make(parts=2, rows=2_000, initial=tf.zeros, slots={"moment": Slot(0, 0.0)}, **options)
    slot = table.slots["moment"]
    assert {part.values.dtype for part in table.parts} == {tf.bfloat16}
    assert {part.values.dtype for part in slot.parts} == {tf.float16}
    table.assign(tf.range(2_000), tf.fill((2_000, COLUMNS), 1 + 2.0**-8))
    one, two = (part.gather(tf.range(1_000)) > 1 for part in table.parts)
    for ups in (one, two, one == two):
        assert np.mean(ups) == pytest.approx(0.5, abs=0.05)


@pytest.mark.slow
def test_two_devices_hold_their_own_rows_and_train_as_one():
    ended = fresh("tests.tables.two_shards")
    assert ended.code == 0, ended.err
    expected = {"devices": ["CPU:0", "CPU:1"], "differ": 0, "steps": ["CPU:0", "CPU:1"]}
    assert json.loads(ended.out) == expected


@pytest.mark.slow
def test_more_numbers_than_int32_counts():
    """4.3 GB of them; a part has 2^30 and the table 2^31."""
    rows, columns = 2**21 + 3, 1024
    initial = Uniform(0.5, 1)
    table = sharded.make(rows, columns, initial, ["CPU:0"] * 2, dtype=tf.bfloat16)
    assert rows * columns > 2**31 and table.bytes() > 2**32
    ids = tf.constant([0, 1, 2**20, rows // 2, rows - 2, rows - 1], tf.int64)
    expected = tf.cast(tf.cast(initial.rows(ids, columns), tf.bfloat16), tf.float32)
    np.testing.assert_array_equal(table.gather(ids), expected)
    table.assign(ids, -expected)
    np.testing.assert_array_equal(table.gather(ids), -expected)


@pytest.mark.slow
def test_a_part_of_more_numbers_than_int32_counts():
    rows, columns = 2**21 + 3, 1024
    table = sharded.make(rows, columns, tf.zeros, ["CPU:0"], dtype=tf.bfloat16)
    ids = tf.constant([rows - 1, 0, 2**20])
    table.assign(ids, tf.ones((3, columns)))
    table.assign(ids, table.gather(ids) + 1.0)
    np.testing.assert_array_equal(table.gather(ids), np.full((3, columns), 2.0))
    np.testing.assert_array_equal(table.gather(ids - [1, -1, -1]), np.zeros((3, columns)))
