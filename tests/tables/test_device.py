import numpy as np
import pytest
import tensorflow as tf

from app.tables.base import Slot
from app.tables.device import DeviceTable
from app.tables.initial import (
    Constant,
    FirstColumns,
    LastColumn,
    Uniform,
    _rows_function,
    compiled_rows,
)

ROWS = np.arange(12, dtype=np.float32).reshape(6, 2)


ONE = {"accumulator": Slot(1, 0.25)}


@pytest.fixture
def table():
    return DeviceTable(6, 2, lambda shape: tf.constant(ROWS), slots=ONE)


def all_rows(table):
    return table.gather(tf.range(table.rows)).numpy()


def test_it_starts_as_its_initial_values_which_are_made_once():
    shapes = []

    def initial(shape):
        shapes.append(shape)
        return tf.ones(shape)

    table = DeviceTable(6, 2, initial)
    assert shapes == [(6, 2)]
    assert (table.rows, table.columns) == (6, 2)
    np.testing.assert_array_equal(all_rows(table), np.ones((6, 2)))


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.float16])
def test_rows_are_stored_as_asked_and_slots_as_float32(dtype):
    table = DeviceTable(6, 2, lambda shape: tf.fill(shape, 1 / 3), dtype)
    assert table.values.dtype == dtype
    assert table.gather(tf.constant([0])).dtype == tf.float32
    third = np.float32(1 / 3).astype(dtype.as_numpy_dtype).astype(np.float32)
    np.testing.assert_array_equal(all_rows(table), np.full((6, 2), third))
    assert table.bytes() == 12 * dtype.size
    slotted = DeviceTable(6, 2, tf.zeros, dtype, slots=ONE)
    assert slotted.slots["accumulator"].values.dtype == tf.float32
    assert slotted.bytes() == 12 * dtype.size + 6 * 4
    assert table.is_finite()
    table.assign(tf.constant([5]), tf.constant([[1.0, float("inf")]]))
    assert not table.is_finite()


def test_a_compiled_function_never_reads_the_whole_table(table):
    @tf.function
    def touch(ids):
        rows = table.gather(ids)
        table.assign(ids, rows)

    operations = {op.type for op in touch.get_concrete_function(tf.range(3)).graph.get_operations()}
    assert {"ResourceGather", "ResourceScatterUpdate"} <= operations
    assert "ReadVariableOp" not in operations


def test_slots_are_tables_of_the_same_rows_by_name(table):
    slot = table.slots["accumulator"]
    assert (slot.rows, slot.columns) == (6, 1)
    assert slot.values.device == table.values.device
    np.testing.assert_array_equal(all_rows(slot), np.full((6, 1), 0.25, np.float32))
    both = DeviceTable(6, 2, tf.zeros, slots={**ONE, "moment": Slot(0, 0.0)}).slots
    assert {name: slot.columns for name, slot in both.items()} == {"accumulator": 1, "moment": 2}


def test_a_checkpoint_of_a_table_holds_its_slots(table, tmp_path):
    table.slots["accumulator"].assign(tf.constant([2]), tf.constant([[7.0]]))
    path = tf.train.Checkpoint(table=table).write(str(tmp_path / "saved"))

    other = DeviceTable(6, 2, tf.zeros, slots={"accumulator": Slot(1, 0.0)})
    tf.train.Checkpoint(table=other).read(path).assert_consumed()
    np.testing.assert_array_equal(all_rows(other), ROWS)
    expected = np.array([[0.25], [0.25], [7], [0.25], [0.25], [0.25]], np.float32)
    np.testing.assert_array_equal(all_rows(other.slots["accumulator"]), expected)


HALVES = [tf.bfloat16, tf.float16]
halves = pytest.mark.parametrize("dtype", HALVES)


def make_half(dtype=tf.bfloat16, rounding="stochastic", **options):
    slots = {"moment": Slot(20, 0.0)}
    return DeviceTable(300, 20, tf.ones, dtype, slots, rounding=rounding, **options)


@halves
def test_small_changes_add_up_only_where_rounding_is_stochastic(dtype):
    # An eighth of the distance to the next number, 64 times: eight numbers up.
    change, steps = float(2 ** {tf.bfloat16: -10, tf.float16: -13}[dtype]), 64
    changes_UD, ids = tf.fill((300, 20), change), tf.range(300)
    ended = {}
    for rounding in ("nearest", "stochastic"):
        table = make_half(dtype, rounding)

        @tf.function(autograph=False)
        def step(table=table):
            table.assign(ids, table.gather(ids) + changes_UD)

        train = step.get_concrete_function()
        for _ in range(steps):
            train()
        ended[rounding] = all_rows(table)
    assert (ended["nearest"] == 1).all()
    moved = (ended["stochastic"] - 1) / change
    # Of each step the variance is 1/8 x 7/8 of the distance squared, which is 8 changes.
    error = 8 * np.sqrt(steps * 1 / 8 * 7 / 8)
    assert abs(moved.mean() - steps) < 5 * error / np.sqrt(moved.size)
    assert 0.9 < moved.std() / error < 1.1


def test_rows_that_are_written_as_they_are_stay_bit_for_bit():
    table = make_half()
    ids = tf.range(300)
    table.assign(ids, tf.random.stateless_normal((300, 20), [1, 2]))
    before = all_rows(table)
    table.assign(ids, table.gather(ids))
    assert all_rows(table).tobytes() == before.tobytes()
    assert int(table.writes) == 2


def test_writes_and_tables_are_rounded_apart():
    def written(table, count):
        found = []
        for _ in range(count):
            table.assign(tf.range(300), tf.fill((300, 20), 1 + 2.0**-8))
            found.append(all_rows(table) > 1)
        return np.array(found)

    one = written(make_half(seed=1), 20)
    two = written(make_half(seed=2), 1)
    slot = written(make_half(slot_dtype=tf.bfloat16, seed=1).slots["moment"], 1)
    assert one[0].mean() == pytest.approx(0.5, abs=0.05)
    for other in (one[1], two[0], slot[0]):
        assert (one[0] == other).mean() == pytest.approx(0.5, abs=0.05)
    # Of 20 writes every number has its own: as many ups as of a coin.
    assert one.sum(axis=0).var() == pytest.approx(20 / 4, rel=0.2)


@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
def test_a_run_goes_on_with_the_draws_that_follow(rounding, tmp_path):
    def train(table, steps):
        for _ in range(steps):
            for part in (table, table.slots["moment"]):
                part.assign(tf.range(300), part.gather(tf.range(300)) + 2.0**-10)

    whole, half, resumed = (make_half(rounding=rounding, slot_dtype=tf.float16) for _ in range(3))
    train(whole, 4)
    train(half, 2)
    path = tf.train.Checkpoint(table=half).write(str(tmp_path / "saved"))
    train(resumed, 1)
    tf.train.Checkpoint(table=resumed).read(path).assert_consumed()
    train(resumed, 2)
    for ours, theirs in ((resumed, whole), (resumed.slots["moment"], whole.slots["moment"])):
        assert all_rows(ours).tobytes() == all_rows(theirs).tobytes()
    keys = tf.train.load_checkpoint(path).get_variable_to_shape_map()
    counters = {key for key in keys if "writes" in key}
    stem = "writes/.ATTRIBUTES/VARIABLE_VALUE"
    expected = {f"table/{stem}", f"table/slots/moment/{stem}"}
    assert counters == (expected if rounding == "stochastic" else set())


def test_slots_are_stored_as_asked_but_for_single_numbers():
    slots, half = {"moment": Slot(0, 0.25), **ONE}, tf.bfloat16
    table = DeviceTable(300, 20, tf.ones, half, slot_dtype=half, slots=slots)
    assert table.slots["moment"].values.dtype == half
    assert table.slots["accumulator"].values.dtype == tf.float32
    assert table.bytes() == 300 * (20 * 2 * 2 + 4)
    np.testing.assert_array_equal(all_rows(table.slots["moment"]), np.full((300, 20), 0.25))


@halves
def test_half_of_float32_starts_as_that_rounded(dtype):
    initial = Uniform(0.5, 7)
    expected = initial((50, 3)).numpy().astype(dtype.as_numpy_dtype).astype(np.float32)
    np.testing.assert_array_equal(all_rows(DeviceTable(50, 3, initial, dtype)), expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda number: Uniform(0.5, number),
        lambda number: LastColumn(Constant(number / 4), tf.range(99.0)),
        lambda number: FirstColumns(lambda: number * tf.ones((99, 2)), Constant(0.0)),
        lambda number: LastColumn(Uniform(number / 4, 2), tf.range(99.0)),
    ],
)
def test_the_rows_of_the_next_table_are_made_by_the_same_function(make):
    """TensorFlow keeps some of every function that calls one of XLA: 118 kB of this one."""
    ids, function = tf.range(25, dtype=tf.int64), _rows_function(3, tf.float16)
    first = compiled_rows(make(1), ids, 3, tf.float16)
    before = function.experimental_get_tracing_count()
    second = compiled_rows(make(2), ids + 70, 3, tf.float16)
    assert function.experimental_get_tracing_count() == before > 0
    np.testing.assert_array_equal(second, tf.cast(make(2).rows(ids + 70, 3), tf.float16))
    assert (second.numpy() != first.numpy()).any()
