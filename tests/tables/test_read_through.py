"""A table of which only some rows are cached, against a table on the device."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf

from app.tables.base import Slot
from app.tables.cached import CachedTable, CacheMap
from app.tables.device import DeviceTable
from app.tables.disk.file import FileTable
from app.tables.disk.table_file import TableFile
from app.tables.initial import Uniform

ROWS, COLUMNS, SIZE = 30, 3, 8
SLOTS = {"accumulator": Slot(1, 0.5), "moment": Slot(0, 0.0)}
ALL = tf.range(ROWS, dtype=tf.int64)


@pytest.fixture(params=["host", "file"])
def table(request, tmp_path):
    if request.param == "host":
        backing = DeviceTable(ROWS, COLUMNS, Uniform(1.0, 5))
    else:
        file = TableFile(tmp_path / "rows.bin", "owner", resume=False)
        backing = FileTable(file, "rows", ROWS, COLUMNS, Uniform(1.0, 5))
    cache_map = CacheMap(ROWS, np.zeros(0, np.int64), SIZE)
    return CachedTable(backing, "CPU:0", cache_map, is_shared=True)


def load(table, ids):
    """As a chunk of steps that needs these ids is prepared."""
    ids = np.array(ids)
    plan = table.cache_map.plan(ids)
    table.cache_map.apply(plan, ids)
    table.write_back(plan.evicted_ids_N, table.apply(plan, table.load(plan)))


def change(table, ids, number):
    ids = table.locate(ids)
    table.assign(ids, table.gather(ids) * 1.1 + number)
    for slot in table.slots.values():
        slot.assign(ids, slot.gather(ids) + 1.0 + number)


def contents(table):
    return [t.gather(ALL).numpy().tobytes() for t in (table, *table.slots.values())]


@pytest.mark.slow
@pytest.mark.parametrize("jit", [None, False, True], ids=["eager", "graph", "xla"])
def test_rows_are_those_of_a_table_on_the_device_bit_for_bit(table, jit):
    if jit and isinstance(table.backing, FileTable):
        pytest.skip("XLA cannot call Python")
    plain = DeviceTable(ROWS, COLUMNS, Uniform(1.0, 5))

    def compiled(table):
        function = functools.partial(change, table)
        signature = [tf.TensorSpec([5], tf.int64), tf.TensorSpec([])]
        if jit is None:
            return function
        return tf.function(function, signature, jit_compile=jit, autograph=False)

    random = np.random.default_rng(1)
    load(table, [1, 2, 3])
    for wanted in (table, plain):
        wanted.add_slots(SLOTS)  # when rows are cached
    steps = [compiled(wanted) for wanted in (table, plain)]
    for number in range(30):
        ids = random.choice(ROWS, 5, replace=False)
        if number % 3 == 0:
            load(table, ids)
        if number % 3 == 1:
            load(table, ids[:3])
        for step in steps:
            step(tf.constant(ids), tf.constant(float(number)))
        assert contents(table) == contents(plain)


def test_only_cached_rows_are_written_to_the_cache(table):
    load(table, [4, 9])
    before, version = table.backing.gather(ALL).numpy(), table.version()
    table.assign(tf.constant([9, 4]), tf.ones([2, COLUMNS]))
    np.testing.assert_array_equal(table.backing.gather(ALL), before)
    assert table.version() == version
    table.assign(tf.constant([9, 20]), tf.zeros([2, COLUMNS]))
    changed = np.any(table.backing.gather(ALL).numpy() != before, axis=1)
    assert np.flatnonzero(changed).tolist() == [20] and table.version() == version + 1
    assert not np.any(table.gather(tf.constant([20, 9])))
    assert np.all(table.gather(tf.constant([4])) == 1)
