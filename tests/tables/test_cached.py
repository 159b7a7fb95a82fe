import concurrent.futures

import numpy as np
import pytest
import tensorflow as tf

from app.assembly import memory_plan
from app.optimizers.adagrad import rowwise_adagrad
from app.optimizers.adam import lazy_adam
from app.tables.base import Slot, TableSpec
from app.tables.cached import CachedTable, CacheMap, CacheSize, cached_rows_only
from app.tables.device import DeviceTable
from app.tables.disk.file import FileTable
from app.tables.disk.table_file import TableFile
from app.tables.initial import Uniform
from app.tables.prefetch import CacheTooSmallError, Chunk, InPlace, PlannedChunk, Prefetcher
from app.training.step import lookup_function, train_function
from tests.reference.batches import make_model, make_tokens

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
    where, evicted = {int(id): position for position, id in enumerate(PINNED)}, 0
    for ids in chunks():
        ids = cache_map.drop_pinned(ids)
        assert not np.isin(PINNED, ids).any()
        plan = cache_map.plan(ids)
        evicted += len(plan.evicted_ids_N)
        for id, position in zip(plan.evicted_ids_N, plan.evicted_positions_N, strict=True):
            assert where.pop(int(id)) == position and id not in ids and id not in PINNED
        for id, position in zip(plan.loaded_ids_M, plan.loaded_positions_M, strict=True):
            assert id not in where and position not in where.values()
            where[int(id)] = position
        cache_map.apply(plan, ids)
        assert set(ids.tolist()) <= where.keys()
        assert len(cache_map.misses(ids)) == 0
        assert max(where.values()) < len(PINNED) + UNPINNED
    assert evicted


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
    plain = DeviceTable(ROWS, COLUMNS, Uniform(1.0, 5))

    def compiled(table):
        def function(ids, number):
            with cached_rows_only():
                train(table, ids, number)

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
        if jit or number % 3 == 0:  # a compiled step has only cached rows
            load(table, ids)
        elif number % 3 == 1:
            load(table, ids[:3])
        for step in steps:
            step(tf.constant(ids), tf.constant(float(number)))
        assert contents(table) == contents(plain)


def test_xla_reads_nan_for_a_row_that_is_not_cached_and_writes_none(table):
    load(table, [4, 9])
    before = contents(table)

    @tf.function(jit_compile=True)
    def step(ids):
        rows = table.gather(ids)
        table.assign(ids, tf.zeros_like(rows))
        return rows

    ids = tf.constant([9, 20, -1, ROWS, 2**31 - 1])
    assert table.has_all(ids[:1]) and not table.has_all(ids[:2])
    assert np.isnan(step(ids)).any(axis=1).tolist() == [False, True, True, True, True]
    table.flush()
    changed = [
        np.frombuffer(a, np.uint8) != np.frombuffer(b, np.uint8)
        for a, b in zip(before, contents(table), strict=True)
    ]
    assert np.flatnonzero(changed[0].reshape(ROWS, -1).any(axis=1)).tolist() == [9]


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


# Cached tables against tables on the device, through whole steps and runs.


WORDS, STEPS, BATCHES, STAGED = 400, 2, 12, 6
COUNTS = np.arange(WORDS, 0, -1) ** 2
OPTIMIZERS = {"rowwise_adagrad": rowwise_adagrad, "lazy_adam": lazy_adam}


def batches(number=BATCHES):
    for batch in range(number):
        seeds = [[batch, step] for step in range(STEPS)]
        tokens = [make_tokens(range(batch * 20, batch * 20 + 100), seed=seed) for seed in seeds]
        yield batch // 5, tf.constant(np.stack(tokens))


def make(optimizer):
    model = make_model("skipgram", COUNTS)
    return model, {
        name: DeviceTable(spec.rows, spec.columns, spec.initial, slots=optimizer.slots)
        for name, spec in model.tables().items()
    }


def trained(optimizer, way, after=lambda batch: None):
    """The tables after all batches; way: from a model and tables to what brings their rows."""
    model, tables = make(optimizer)
    brought = way(model, tables)
    function = train_function(model, brought.tables, optimizer, seed=4)
    for number, (epoch, tokens) in enumerate(brought.prefetch(batches(), 0)):
        assert epoch == number // 5
        function(tokens, tf.constant(number * STEPS, tf.int64), tf.constant(0.1))
        after(brought, tables, number)
    brought.write_back()
    brought.close()
    return all_contents(tables), brought


def all_contents(tables):
    found = {name: table.values.numpy().tobytes() for name, table in tables.items()}
    for name, table in tables.items():
        found |= {f"{name}.{n}": slot.values.numpy().tobytes() for n, slot in table.slots.items()}
    return found


def cache_size_of(pinned, unpinned):
    """The pinned rows are the first, or none are."""
    return CacheSize(np.arange(pinned), unpinned, 0)


def through(sizes, stage_steps=STAGED):
    def way(model, tables):
        calls = memory_plan.calls_per_chunk(stage_steps, STEPS)
        lookups = lookup_function(model, 4)
        return Prefetcher(tables, lookups, "CPU:0", calls, STEPS, cache_sizes=sizes)

    return way


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize(
    "sizes",
    [
        {"input": cache_size_of(40, 200), "output": cache_size_of(0, 360)},
        # Too little for a whole chunk, which is cut short.
        {"input": cache_size_of(10, 75), "output": cache_size_of(200, 120)},
        *(
            pytest.param(sizes, marks=pytest.mark.slow)
            for sizes in (
                {"input": cache_size_of(WORDS, 0), "output": cache_size_of(WORDS, 0)},
                {"output": cache_size_of(100, 300)},
            )
        ),
    ],
)
def test_results_are_those_of_tables_on_the_device_bit_for_bit(name, sizes):
    optimizer = OPTIMIZERS[name]()
    expected = []

    def keep(brought, tables, number):
        expected.append(all_contents(tables))

    def compare(brought, tables, number):
        if number % 5 == 4:  # in the middle of a chunk
            brought.write_back()
            assert all_contents(tables) == expected[number]

    whole, _ = trained(optimizer, lambda model, tables: InPlace(tables), keep)
    found, brought = trained(optimizer, through(sizes), compare)
    assert found == whole
    values = brought.values()
    assert 0 < values["stage_hit_rate"] <= 1 and 0 <= values["stage_stall"] <= 1
    assert (values["staged_bytes"] > 0) == (sizes.get("input", cache_size_of(0, 1)).unpinned > 0)


def test_what_a_call_of_more_ids_than_the_cache_holds_has_no_plan():
    optimizer = rowwise_adagrad()
    with pytest.raises(CacheTooSmallError, match="rows of input, and its cache has 3"):
        trained(optimizer, through({"input": cache_size_of(0, 3)}), lambda *_: None)


@pytest.mark.slow
def test_rows_that_are_needed_again_are_not_loaded_again():
    optimizer, model_tables = rowwise_adagrad(), {}

    def same(model, tables):
        model_tables.update(tables)
        return through({"input": cache_size_of(0, WORDS)}, STEPS)(model, tables)

    moved = []

    def watch(brought, tables, number):
        moved.append(brought.values()["staged_bytes"])

    trained(optimizer, same, watch)
    assert moved[0] > 0
    # The cache is large enough: every row is loaded once, and none is evicted.
    assert sum(moved) * STEPS <= WORDS * (6 + 1) * 4


def test_an_error_of_the_batches_reaches_the_loop():
    optimizer = rowwise_adagrad()
    model, tables = make(optimizer)
    brought = through({"input": cache_size_of(10, 300)})(model, tables)

    def broken():
        yield from batches(4)
        raise OSError("the text is gone")

    seen = 0
    with pytest.raises(OSError, match="the text is gone"):
        for _ in brought.prefetch(broken(), 0):
            seen += 1
    assert seen <= 4
    brought.close()


def test_no_batches_are_nothing_to_do():
    optimizer = rowwise_adagrad()
    model, tables = make(optimizer)
    before = all_contents(tables)
    brought = through({"input": cache_size_of(10, 300)})(model, tables)
    assert list(brought.prefetch(iter(()), 0)) == []
    brought.write_back()
    brought.close()
    assert all_contents(tables) == before


def test_first_lookups_are_the_ids_of_the_first_calls(caplog):
    model, _ = make(rowwise_adagrad())
    for _ in range(5):  # as several runs do, without a warning of TensorFlow
        found = memory_plan.first_lookups(model, batches(), 4, "CPU:0", 3)
    assert caplog.messages == []
    assert found.keys() == {"input", "output"} and len(found["input"]) == 3
    assert found["input"][0].size == next(batches())[1].numpy()[:, :, 3:-3].size


def test_the_cache_that_a_chunk_needs():
    needed = [np.array([9, 9, 9, 2, 2, 5]), np.array([9, 3, 3, 3, 4, 0])]
    by_frequency = memory_plan.estimate_cache_size(
        TableSpec(1000, 2, tf.zeros, by_frequency=True), needed, 4
    )
    assert by_frequency.pinned_N.tolist() == [0, 1, 2, 3]
    learned = memory_plan.estimate_cache_size(TableSpec(1000, 2, tf.zeros), needed, 2)
    assert learned.pinned_N.tolist() == [3, 9]
    assert learned.unpinned == 6  # as a call may need so many
    assert learned.loaded == 4
    whole = memory_plan.estimate_cache_size(TableSpec(8, 2, tf.zeros), [np.array([1])], 100)
    assert whole.unpinned == 0


def test_a_chunk_that_was_applied_in_part_is_not_applied_again():
    calls = []

    def apply(chunk):
        calls.append(chunk)
        raise OSError("the disk is full")

    future = concurrent.futures.Future()
    future.set_result(Chunk([], {}, {}, {}))
    planned = PlannedChunk(future, apply)
    for again in (planned.applied, planned.settle, planned.applied):
        with pytest.raises(OSError, match="the disk is full"):
            again()
    assert len(calls) == 1
