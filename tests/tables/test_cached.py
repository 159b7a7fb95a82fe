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

ROWS, COLUMNS, UNPINNED = 30, 3, 8
PINNED = np.array([0, 3, 7])


def chunks(number=40, seed=0):
    """Distinct ids of chunk after chunk, of which at most UNPINNED are unpinned; some share ids."""
    random = np.random.default_rng(seed)
    for _ in range(number):
        ids = random.choice(ROWS, random.integers(0, UNPINNED + 1), replace=False)
        yield np.append(ids, random.choice(PINNED, 1)).astype(np.int32)


@pytest.fixture
def cache_map():
    return CacheMap(ROWS, PINNED, UNPINNED)


def test_every_id_of_a_chunk_has_a_position_of_its_own(cache_map):
    where = {int(id): position for position, id in enumerate(PINNED)}
    for ids in chunks():
        ids = cache_map.drop_pinned(ids)
        assert not np.isin(PINNED, ids).any()
        plan = cache_map.plan(ids)
        for id, position in zip(plan.evicted_ids_N, plan.evicted_positions_N, strict=True):
            assert where.pop(int(id)) == position and id not in ids and id not in PINNED
        for id, position in zip(plan.loaded_ids_M, plan.loaded_positions_M, strict=True):
            assert id not in where and position not in where.values()
            where[int(id)] = position
        cache_map.apply(plan, ids)
        assert set(ids.tolist()) <= where.keys()
        assert len(cache_map.misses(ids)) == 0
        assert max(where.values()) < len(PINNED) + UNPINNED


def test_ids_that_are_not_pinned(cache_map):
    ids = np.array([0, 1, 7, 7, 9, 9, 3])
    for pinned_N, unpinned in ((PINNED, [1, 9, 9]), (np.arange(4), [7, 7, 9, 9])):
        cache_map = CacheMap(ROWS, pinned_N, UNPINNED)
        assert cache_map.drop_pinned(ids).tolist() == unpinned
        cache_map.apply(cache_map.plan(np.array([9])), np.array([9]))
        assert cache_map.drop_pinned(ids).tolist() == unpinned


def test_rows_not_needed_for_longest_are_evicted(cache_map):
    for ids in ([10, 11, 12, 13], [14, 15, 16, 17], [10, 12]):
        cache_map.apply(cache_map.plan(np.array(ids)), np.array(ids))
    plan = cache_map.plan(np.array([20, 21, 14, 20]))
    assert sorted(plan.evicted_ids_N) == [11, 13] and plan.loaded_ids_M.tolist() == [20, 21]


def test_a_plan_alone_changes_nothing(cache_map):
    ids = np.array([9, 9, 20])
    assert cache_map.misses(ids).tolist() == [9, 9, 20]
    one, other = cache_map.plan(ids), cache_map.plan(ids)
    assert all((a == b).all() for a, b in zip(one, other, strict=True))
    assert cache_map.misses(ids).tolist() == [9, 9, 20]


def test_too_many_ids_for_the_cache(cache_map):
    assert cache_map.plan(np.arange(8, 8 + UNPINNED)) is not None
    assert cache_map.plan(np.arange(8, 8 + UNPINNED + 1)) is None


def make_backing(dtype=tf.float32):
    slots = {"accumulator": Slot(1, 0.5)}
    options = {"rounding": "stochastic", "seed": 3}
    return DeviceTable(ROWS, COLUMNS, Uniform(1.0, 5), dtype, slots, **options)


def change(table, ids, number):
    """Rows and slots become what only right rows give."""
    table.assign(ids, table.gather(ids) * 1.1 + number)
    slot = table.slots["accumulator"]
    slot.assign(ids, slot.gather(ids) + tf.cast(ids, tf.float32)[:, tf.newaxis])
    table.assign(ids, table.gather(ids) + 1.0)


def assert_same_bits(one, other):
    for a, b in ((one, other), (one.slots["accumulator"], other.slots["accumulator"])):
        assert a.values.numpy().tobytes() == b.values.numpy().tobytes()


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_rows_are_those_of_a_table_in_one_place_bit_for_bit(dtype, cache_map):
    backing, plain = make_backing(dtype), make_backing(dtype)
    table = CachedTable(backing, "CPU:0", cache_map)
    for number, ids in enumerate(chunks()):
        plan = cache_map.plan(cache_map.drop_pinned(ids))
        cache_map.apply(plan, cache_map.drop_pinned(ids))
        table.write_back(plan.evicted_ids_N, table.apply(plan, table.load(plan)))
        for wanted in (table, plain):
            change(wanted, tf.constant(np.unique(ids)), number)
        if number % 7 == 0:
            table.flush()
            assert_same_bits(backing, plain)
    table.flush()
    assert_same_bits(backing, plain)


def test_a_row_that_is_not_cached_is_refused(cache_map):
    table = CachedTable(make_backing(), "CPU:0", cache_map)
    with tf.device("CPU:0"), pytest.raises(tf.errors.InvalidArgumentError):
        table.gather(tf.constant([9]))


def test_bytes_on_the_device(cache_map):
    table = CachedTable(make_backing(), "CPU:0", cache_map)
    assert table.bytes() == (len(PINNED) + UNPINNED) * (COLUMNS + 1) * 4
    assert table.row_bytes() == (COLUMNS + 1) * 4
    assert table.is_finite()


# Tables of which steps also read and write rows that are not cached.
SLOTS = {"accumulator": Slot(1, 0.5), "moment": Slot(0, 0.0)}
ALL = tf.range(ROWS, dtype=tf.int64)


@pytest.fixture(params=["host", "file"])
def table(request, tmp_path):
    if request.param == "host":
        backing = DeviceTable(ROWS, COLUMNS, Uniform(1.0, 5))
    else:
        file = TableFile(tmp_path / "rows.bin", "owner", resume=False)
        backing = FileTable(file, "rows", ROWS, COLUMNS, Uniform(1.0, 5))
    cache_map = CacheMap(ROWS, np.zeros(0, np.int64), UNPINNED)
    return CachedTable(backing, "CPU:0", cache_map, is_shared=True)


def load(table, ids):
    """As a chunk of steps that needs these ids is prepared."""
    ids = np.array(ids)
    plan = table.cache_map.plan(ids)
    table.cache_map.apply(plan, ids)
    table.write_back(plan.evicted_ids_N, table.apply(plan, table.load(plan)))


def train(table, ids, number):
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
        function = functools.partial(train, table)
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
