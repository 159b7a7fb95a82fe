"""Rows on parameter servers are changed as those at home, by whoever, and there."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf

from app.distributed.served_calls import CallRows
from app.optimizers.adagrad import adagrad, rowwise_adagrad
from app.optimizers.base import update_rows
from app.tables import sharded
from app.tables.initial import Uniform
from app.tables.served import ServedTables
from app.training.gradients import Lookup
from tests.integration.commands import done
from tests.tables import two_servers

ROWS, RATE = 40, tf.constant(0.1)


@pytest.mark.slow
def test_servers_change_rows_as_a_table_at_home_and_one_after_the_other(tmp_path):
    found = json.loads(done(tmp_path, "tests.tables.two_servers").out)
    for name in two_servers.OPTIMIZERS:
        assert found[name] < 1e-6, found
    calls = two_servers.CALLS * two_servers.STEPS
    assert found["raised"] == [calls], "a change was lost between two workers"
    assert found["updates"] == [calls, calls]
    assert found["elsewhere"] == [], "rows travel that could be changed where they are"


def made(dtype=tf.float32, optimizer=None, columns=6):
    """A table on two servers, its interface, and the rows of each call of the optimizer."""
    optimizer, changed = optimizer or rowwise_adagrad(), []
    options = {"dtype": dtype, "slots": optimizer.slots}
    table = sharded.make(ROWS, columns, Uniform(0.5, 1), ["CPU:0", "CPU:0"], **options)

    def update(name, shard, ids_U, gradients_UD, rate, number):
        tf.numpy_function(lambda ids: changed.append(ids.tolist()), [ids_U], [])
        update_rows(optimizer.rule, shard, ids_U, gradients_UD, rate, number)

    return table, ServedTables({"rows": table}, update), changed


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.float16])
def test_rows_travel_in_the_dtype_of_their_table(dtype):
    table, served, _ = made(dtype)
    ids_U = tf.constant([3, 8, 39, 0])

    @tf.function(autograph=False)
    def read():
        return served.gather({"rows": ids_U})["rows"], served.exchanged_bytes()

    rows_UD, size = read()
    np.testing.assert_array_equal(rows_UD, table.gather(ids_U))
    # To each of two servers a count and the ids; back only rows.
    assert size == 2 * 4 + 4 * 4 + 4 * 6 * dtype.size


def test_gradients_of_zeros_stay_at_home():
    table, served, changed = made()
    before = table.gather(tf.range(ROWS)).numpy()
    gradients_UD = np.zeros((4, 6), np.float32)
    gradients_UD[1], gradients_UD[3] = 1.0, -2.0

    @tf.function(autograph=False)
    def write():
        numbers = served.update({"rows": (tf.constant([4, 7, 10, 12]), gradients_UD)}, RATE)
        return numbers, served.exchanged_bytes()

    numbers, size = write()
    assert [int(number) for number in numbers] == [1, 1]
    assert sorted(changed) == [[3], [6]]  # ids 7 and 12 are rows 3 and 6 of shards 1 and 0
    assert size == 2 * 4 + 2 * (4 + 6 * 4)
    after = table.gather(tf.range(ROWS)).numpy()
    assert np.flatnonzero((after != before).any(axis=1)).tolist() == [7, 12]


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", [rowwise_adagrad(), adagrad()])
def test_the_steps_of_a_call_change_rows_as_one_by_one(optimizer):
    """Ids repeat within the call; a second worker changes a row meanwhile; one row is idle."""
    table, served, _ = made(optimizer=optimizer)
    other, *_ = made(optimizer=optimizer)
    steps = [tf.constant(ids) for ids in ([5, 2, 9], [2, 30], [9, 2, 31])]

    def gradient(rows_UD, ids_U):
        return tf.where(ids_U[:, tf.newaxis] == 31, 0.0, tf.sin(9 * rows_UD))

    @tf.function(autograph=False)
    def call():
        lookups = [[{"rows": Lookup(ids_U, None, ids_U, "rows"), "else": None}] for ids_U in steps]
        rows = CallRows(served, [*optimizer.slots], lookups, ["rows"])
        local = rows.tables["rows"]
        for number, ((lookup,), ids_U) in enumerate(zip(rows.lookups, steps, strict=True)):
            at_U = lookup["rows"].rows_U
            by_row = gradient(local.gather(at_U), ids_U)
            update_rows(optimizer.rule, local, at_U, by_row, RATE, tf.constant(number, tf.int64))
        with tf.control_dependencies([local.values_UD]):
            table.assign(tf.constant([2]), table.gather(tf.constant([2])) + 1.0)
        served.exchanged_bytes()
        rows.send_changes()
        return served.exchanged_bytes()

    size = call()
    for number, ids_U in enumerate(steps):
        rows_UD = other.gather(ids_U)
        step = tf.constant(number, tf.int64)
        update_rows(optimizer.rule, other, ids_U, gradient(rows_UD, ids_U), RATE, step)
    other.assign(tf.constant([2]), other.gather(tf.constant([2])) + 1.0)
    every = tf.range(ROWS)
    np.testing.assert_allclose(table.gather(every), other.gather(every), atol=1e-6)
    for name, slot in table.slots.items():
        np.testing.assert_allclose(slot.gather(every), other.slots[name].gather(every), atol=1e-6)
    columns = 6 + next(iter(table.slots.values())).columns
    assert size == 2 * 4 + 4 * (4 + 4 * columns)  # four of five rows have changed
