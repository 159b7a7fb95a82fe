from __future__ import annotations

import errno

import numpy as np
import pytest
import tensorflow as tf

from app.errors import DamagedError, RunError
from app.tables import arrays
from app.tables.base import Slot
from app.tables.dynamic.dynamic import DynamicTable
from app.tables.dynamic.keys import INT64, STRING, KeyMap
from app.tables.dynamic.row_store import RowStore, read_rows
from app.tables.initial import Uniform

UNIFORM = Uniform(1.0, seed=3)


def make(capacity=10, columns=3, slots=None, **policy):
    return DynamicTable(KeyMap(capacity, **policy), columns, UNIFORM, slots=slots)


def ids(*keys):
    return tf.constant(keys, tf.int64)


def first(*keys):
    """Initial rows."""
    return UNIFORM.rows(ids(*keys), 3).numpy()


def counts(table):
    return table.key_map.counts_V[table.key_map.in_use()].tolist()


def test_a_key_has_its_initial_row_until_it_is_written():
    table = make()
    far = 2**63 - 1, -(2**63)
    np.testing.assert_array_equal(table.gather(ids(*far)), first(*far))
    np.testing.assert_array_equal(table.gather(ids(7, far[1], 7)), first(7, far[1], 7))
    table.assign(ids(9, 7), tf.ones((2, 3)))  # 9 is new
    table.assign(ids(7, 5), table.gather(ids(7, 5)) + 1.0)
    expected = np.concatenate([first(far[0]), [[1] * 3, [2] * 3], first(5) + 1])
    np.testing.assert_array_equal(table.gather(ids(far[0], 9, 7, 5)), expected)
    assert len(table.key_map) == 5 and (table.rows, table.columns) == (10, 3)
    assert table.gather(ids()).shape == (0, 3)


def test_strings_are_keys():
    table = make(kind=STRING, min_sightings=2)
    words = tf.constant(["a", "b", "a"])
    rows = table.gather(words).numpy()
    np.testing.assert_array_equal(rows[0], rows[2])
    assert (rows[0] != rows[1]).any() and len(table.key_map) == 1
    np.testing.assert_array_equal(table.gather(words), rows)
    np.testing.assert_array_equal(table.known.gather(tf.constant(["b", "c"]))[:1], rows[1:2])
    gather = tf.function(table.gather, autograph=False)
    gather = gather.get_concrete_function(tf.TensorSpec([None], tf.string))
    np.testing.assert_array_equal(gather(words), rows)
    assert counts(table) == [6, 3]


def test_slots_of_new_keys_start_as_they_are_to():
    table = make(capacity=2, slots={"velocity": Slot(2, 0.5)})
    table.gather(ids(1))
    slot = table.slots["velocity"]
    assert (slot.rows, slot.columns) == (2, 2)
    keys = ids(1, 2)
    np.testing.assert_array_equal(slot.gather(keys), np.full((2, 2), 0.5))
    slot.assign(keys, tf.ones((2, 2)))
    table.gather(ids(1, 3))  # 2 goes
    np.testing.assert_array_equal(slot.gather(ids(1, 3)), [[1, 1], [0.5, 0.5]])


def test_located_keys_are_not_looked_up_again():
    table = make(slots={"velocity": Slot(1, 0.0)})
    keys, slot = ids(4, 5), table.slots["velocity"]
    located = table.locate(keys)
    table.assign(located, table.gather(located))
    slot.assign(located, slot.gather(located))
    table.assign(table.locate(located), tf.ones((2, 3)))
    assert table.key_map.step == 1 and counts(table) == [1, 1]
    table.gather(keys)
    table.assign(keys, tf.ones((2, 3)))
    assert table.key_map.step == 3 and counts(table) == [3, 3]


def test_a_row_that_was_looked_up_may_be_anothers_by_now():
    table = make(capacity=2)
    gather = tf.function(table.gather, autograph=False).get_concrete_function(ids(0, 0))
    keys, others = ids(1, 2), ids(3, 4)
    table.assign(keys, tf.ones((2, 3)))
    gather(others)  # is not traced now
    np.testing.assert_array_equal(table.gather(keys), first(1, 2))


def train_steps(table, slot, batches):
    for keys_U in map(table.locate, batches):
        rows_UD = table.gather(keys_U)
        state = slot.gather(keys_U)
        table.assign(keys_U, rows_UD * 0.9 + 1.0)
        slot.assign(keys_U, state * 0.7 + 1.0)


@pytest.mark.slow
def test_a_graph_does_as_eager_code_step_after_step():
    """With far more keys than rows, and steps of one call that TensorFlow could run at once."""
    random = np.random.default_rng(0)
    calls = [[random.choice(40, 8, replace=False) for _ in range(6)] for _ in range(12)]
    eager, graph = (make(12, slots={"count": Slot(1, 0.0)}) for _ in range(2))
    slots = [table.slots["count"] for table in (eager, graph)]

    @tf.function(autograph=False)
    def train(keys_SU):
        train_steps(graph, slots[1], tf.unstack(keys_SU))

    train = train.get_concrete_function(tf.TensorSpec((6, 8), tf.int64))
    for call in calls:
        train(tf.constant(np.array(call), tf.int64))
        train_steps(eager, slots[0], [ids(*keys) for keys in call])
        assert graph.key_map.keys().tolist() == eager.key_map.keys().tolist()
    rows = eager.key_map.in_use()
    assert counts(graph) == counts(eager)
    for name in ("values", "count"):
        pair = [
            table.row_store if name == "values" else table.row_store.slots[name]
            for table in (eager, graph)
        ]
        np.testing.assert_array_equal(pair[0].gather(rows), pair[1].gather(rows))


def test_survivors_stay_as_they_are_bit_for_bit():
    table = make(640)
    keys = ids(*range(640))
    table.assign(keys, tf.random.stateless_normal((640, 3), (1, 2)))
    before = table.gather(keys).numpy()
    table.gather(ids(*range(600)))  # seen more often
    new = table.gather(ids(*range(1000, 1030))).numpy()
    np.testing.assert_array_equal(new, first(*range(1000, 1030)))
    kept = table.key_map.rows(np.arange(640)) >= 0
    assert kept[:600].all() and kept.sum() == 600
    kept_ids = tf.constant(np.arange(640)[kept])
    np.testing.assert_array_equal(table.known.gather(kept_ids), before[kept])


def test_keys_that_are_not_admitted_read_their_initial_row_and_keep_nothing():
    table = make(min_sightings=2, slots={"count": Slot(1, 0.25)})
    slot = table.slots["count"]
    table.gather(ids(1))
    keys = table.locate(ids(1, 2))
    np.testing.assert_array_equal(table.gather(keys), first(1, 2))
    table.assign(keys, tf.ones((2, 3)))
    slot.assign(keys, slot.gather(keys) + 1.0)
    assert table.key_map.keys().tolist() == [1]
    np.testing.assert_array_equal(table.known.gather(ids(1, 2)), [[1] * 3, *first(2)])
    np.testing.assert_array_equal(slot.gather(keys), [[1.25], [0.25]])
    np.testing.assert_array_equal(table.gather(ids(2)), first(2))


def test_unknown_keys_read_their_initial_row_and_are_not_counted():
    table = make()
    table.assign(ids(1, 2), tf.constant([[1.0, 2, 3], [3, 4, 5]]))
    np.testing.assert_array_equal(table.known.gather(ids(5, 1)), [first(5)[0], [1, 2, 3]])
    assert table.key_map.step == 1 and table.key_map.keys().tolist() == [1, 2]


def test_errors_in_a_graph_end_with_their_words():
    table = make(capacity=2)
    call = tf.function(table.gather, autograph=False)
    with pytest.raises(tf.errors.OpError, match="--table_gb"):
        call.get_concrete_function(tf.TensorSpec([3], tf.int64))(ids(1, 2, 3))
    with pytest.raises(RunError, match="--table_gb"):
        table.gather(ids(1, 2, 3))
    with pytest.raises(TypeError, match="keys are string, where the table has int64 keys"):
        table.gather(tf.constant(["a"]))


def test_memory_is_that_of_rows_that_were_in_use():
    rows = 10**7
    table = make(rows, columns=100, slots={"velocity": Slot(100, 0.0)})
    empty = table.bytes()
    table.gather(ids(*range(5)))
    assert table.bytes() == empty + 5 * 100 * 4 * 2
    assert table.key_map.bytes() == empty == pytest.approx(rows * 32, rel=0.01)
    with open("/proc/self/statm") as file:  # 8 GB of rows and slots
        assert int(file.read().split()[1]) * 4096 < 4e9
    assert table.is_finite()
    table.assign(ids(3), tf.fill((1, 100), np.nan))
    assert not table.is_finite()


HALF = {"dtype": tf.bfloat16, "rounding": "stochastic", "slot_dtype": tf.bfloat16}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "storage"), [(INT64, {}), (STRING, {}), (INT64, HALF)])
def test_all_goes_on_after_a_revert_as_it_would_have(kind, storage, tmp_path):
    random = np.random.default_rng(0)
    names = np.arange(40) if kind == INT64 else np.array([f"w{i}".encode() for i in range(40)])
    batches = [tf.constant(random.choice(names, 8, replace=False)) for _ in range(45)]

    def begin():
        keys = KeyMap(12, kind, min_sightings=2, max_age=30)
        table = DynamicTable(keys, 3, UNIFORM, slots={"velocity": Slot(3, 0.0)}, **storage)
        return table, table.slots["velocity"]

    through, other = begin(), begin()
    train_steps(*through, batches[:30])
    through[0].snapshot(tmp_path)
    through[0].commit([tmp_path])
    train_steps(*other, batches[35:40])
    other[0].restore(tmp_path)
    for batch in batches[30:]:
        for pair in (through, other):
            train_steps(*pair, [batch])
        for found, expected in zip(other, through, strict=True):
            np.testing.assert_array_equal(found.gather(batch), expected.gather(batch))
    found, expected = other[0].key_map, through[0].key_map
    assert found.keys().tolist() == expected.keys().tolist()
    assert found.counts_V.tolist() == expected.counts_V.tolist()


def test_a_snapshot_in_many_parts(monkeypatch, tmp_path):
    monkeypatch.setattr("app.tables.row_reads._PART_BYTES", 7 * 4)
    monkeypatch.setattr(arrays, "_BLOCK_BYTES", 50)
    table, other = make(100), make(100)
    table.assign(ids(*range(60)), tf.random.stateless_normal((60, 3), (1, 2)))
    table.snapshot(tmp_path)
    other.restore(tmp_path)
    np.testing.assert_array_equal(
        other.row_store.gather(range(60)), table.row_store.gather(range(60))
    )
    assert other.is_finite()
    np.testing.assert_array_equal(read_rows(tmp_path), table.row_store.gather(range(60)))


def test_a_snapshot_without_its_slots(tmp_path):
    table, other = make(slots={"count": Slot(1, 0.0)}), make()
    table.gather(ids(1, 2))
    table.snapshot(tmp_path)
    other.restore(tmp_path)  # to look at rows, no state is needed
    assert other.key_map.keys().tolist() == [1, 2]
    with pytest.raises(RunError, match="holds no 'moment'; give"):
        make(slots={"moment": Slot(1, 0.0)}).restore(tmp_path)
    with pytest.raises(RunError, match="values has 3 columns, where 4"):
        make(columns=4).restore(tmp_path)


def test_damage_and_a_full_disk_are_told(monkeypatch, tmp_path):
    table = make()
    table.gather(ids(1, 2))
    table.snapshot(tmp_path)
    for path in (tmp_path / "values", tmp_path / "values.json", tmp_path / "keys" / "counts"):
        data = path.read_bytes()
        for wrong in (data[:-5], data[:5] + bytes([data[5] ^ 64]) + data[6:]):
            path.write_bytes(wrong)
            with pytest.raises(DamagedError):
                make().restore(tmp_path)
        path.write_bytes(data)
    make().restore(tmp_path)

    def full(path, parts):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(arrays, "write", full)
    with pytest.raises(OSError, match="No space"):
        table.snapshot(tmp_path / "second")


def test_several_tables_may_share_a_map_by_row_number():
    keys = KeyMap(4)
    pair = [RowStore(keys, 3, UNIFORM), RowStore(keys, 2, tf.zeros, {"count": Slot(1, 0.5)})]
    slot = pair[1].slots["count"]
    seen = keys.see(np.array([8, 5]), np.array([1, 2]), 1)
    for store in pair:
        store.admit(seen.new_rows, keys.hashes(seen.new_keys))
    np.testing.assert_array_equal(pair[0].gather(seen.rows_U), first(8, 5))
    np.testing.assert_array_equal(pair[1].gather(seen.rows_U), np.zeros((2, 2)))
    np.testing.assert_array_equal(slot.gather(seen.rows_U), np.full((2, 1), 0.5))
    late = RowStore(keys, 3, UNIFORM)
    np.testing.assert_array_equal(late.gather(seen.rows_U), first(8, 5))
