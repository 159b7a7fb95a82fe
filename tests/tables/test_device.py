from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from app.tables.device import DeviceTable

ROWS = np.arange(12, dtype=np.float32).reshape(6, 2)


@pytest.fixture
def table():
    return DeviceTable(6, 2, lambda shape: tf.reshape(tf.range(12, dtype=tf.float32), shape))


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
    slot = table.slot("accumulator", 1, 0.1)
    assert slot.values.dtype == tf.float32
    assert table.bytes() == 12 * dtype.size + 6 * 4
    assert table.is_finite()
    table.assign(tf.constant([5]), tf.constant([[1.0, float("inf")]]))
    assert not table.is_finite()


def test_a_compiled_function_never_reads_the_whole_table(table):
    @tf.function
    def touch(ids):
        rows = table.gather(ids)
        table.add(ids, rows)
        table.assign(ids, rows)

    operations = {op.type for op in touch.get_concrete_function(tf.range(3)).graph.get_operations()}
    assert {"ResourceGather", "ResourceScatterAdd", "ResourceScatterUpdate"} <= operations
    assert "ReadVariableOp" not in operations


def test_slots_are_tables_of_the_same_rows_by_name(table):
    slot = table.slot("accumulator", 1, 0.25)
    assert (slot.rows, slot.columns) == (6, 1)
    assert slot.values.device == table.values.device
    np.testing.assert_array_equal(all_rows(slot), np.full((6, 1), 0.25, np.float32))
    assert table.slot("accumulator", 1, 0.25) is slot
    assert table.slot("moment", 2, 0.0) is not slot


def test_a_checkpoint_of_a_table_holds_its_slots(table, tmp_path):
    table.slot("accumulator", 1, 0.25).assign(tf.constant([2]), tf.constant([[7.0]]))
    path = tf.train.Checkpoint(table=table).write(str(tmp_path / "saved"))

    other = DeviceTable(6, 2, tf.zeros)
    other.slot("accumulator", 1, 0.0)
    tf.train.Checkpoint(table=other).read(path).assert_consumed()
    np.testing.assert_array_equal(all_rows(other), ROWS)
    expected = np.array([[0.25], [0.25], [7], [0.25], [0.25], [0.25]], np.float32)
    np.testing.assert_array_equal(all_rows(other.slots["accumulator"]), expected)
