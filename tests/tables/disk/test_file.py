import tempfile

import numpy as np
import pytest
import tensorflow as tf

from app.errors import RunError, UsageError
from app.system import machine
from app.tables.base import Slot
from app.tables.device import DeviceTable, make_cache
from app.tables.disk.file import FileTable, read_rows
from app.tables.disk.table_file import TableFile
from app.tables.initial import Constant, Uniform
from tests.reference import tables

# Numbers that every type holds.
ROWS = np.arange(12, dtype=np.float32).reshape(6, 2)
DTYPES = [tf.float32, tf.bfloat16, tf.float16]


def given(shape):
    return tf.constant(ROWS.reshape(shape))


def opened(path, resume=False, owner="me"):
    return TableFile(path, owner, resume)


def eager(function, *inputs):
    return function(*inputs)


def compiled(function, *inputs):
    specs = [tf.TensorSpec([None, *x.shape[1:]], x.dtype) for x in inputs]
    return tf.function(function, autograph=False).get_concrete_function(*specs)(*inputs)


def by_xla(function, *inputs):
    return tf.function(function, autograph=False, jit_compile=True)(*inputs)


WAYS = pytest.mark.parametrize("way", [eager, compiled])
MADE = DeviceTable, tables.in_file, tables.dealt
KINDS = [(make, way) for make in MADE for way in (eager, compiled)]
KINDS.append((DeviceTable, by_xla))  # which can compile no other
SLOTS = {"accumulator": Slot(1, 0.5)}


@pytest.fixture(params=DTYPES, ids=lambda dtype: dtype.name)
def table(request, tmp_path):
    return FileTable(opened(tmp_path / "rows"), "words", 6, 2, given, request.param, slots=SLOTS)


@pytest.fixture(params=[(*kind, dtype) for kind in KINDS for dtype in DTYPES])
def kind(request, tmp_path, monkeypatch):
    """A table of every kind, a way to call a function that uses it, and the dtype of its rows."""
    make, way, dtype = request.param
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return make(6, 2, given, dtype, slots=SLOTS), way, dtype


def all_rows(table):
    return table.gather(tf.range(table.rows)).numpy()


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_rows_are_gathered_and_assigned_and_no_others(kind, dtype):
    table, way, _ = kind

    def change(ids_U, delta_UD, rows_UD):
        before_UD = table.gather(tf.concat([ids_U, ids_U], axis=0))
        table.assign(ids_U[:2], table.gather(ids_U[:2]) + delta_UD)
        table.assign(ids_U[2:], rows_UD)
        return before_UD, table.gather(ids_U)

    delta, new = tf.constant([[0.5, 2], [-4, 8]]), tf.constant([[1, -1], [0.25, 0]])
    ids = tf.constant([4, 1, 0, 5], dtype)
    found, after = way(change, ids, delta, new)
    assert found.dtype == tf.float32 and found.shape[1] == 2
    np.testing.assert_array_equal(found, ROWS[[4, 1, 0, 5] * 2])
    expected = ROWS.copy()
    expected[[4, 1]] += delta
    expected[[0, 5]] = new
    np.testing.assert_array_equal(all_rows(table), expected)
    np.testing.assert_array_equal(after, expected[ids])


def test_no_ids_are_nothing_to_do(kind):
    table, way, _ = kind

    def change(ids_U, rows_UD):
        table.assign(ids_U, rows_UD)
        return table.gather(ids_U)

    assert way(change, tf.zeros([0], tf.int32), tf.zeros([0, 2])).shape == (0, 2)
    np.testing.assert_array_equal(all_rows(table), ROWS)


@WAYS
@pytest.mark.parametrize("wrong", [-1, 6])
def test_a_row_that_is_not_there_is_refused(table, way, wrong):
    ids, rows = tf.constant([wrong]), tf.ones([1, 2])
    for act in (
        lambda ids_U, _: table.gather(ids_U),
        lambda ids_U, rows_UD: table.assign(ids_U, rows_UD) or ids_U,
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match="words: ids must be from 0"):
            way(act, ids, rows)
    np.testing.assert_array_equal(all_rows(table), ROWS)


def test_rows_are_stored_as_asked_and_slots_as_float32(kind):
    (table, way, dtype), third = kind, tf.constant([[1 / 3, -1 / 3]])
    way(lambda rows_UD: table.assign(tf.constant([2]), rows_UD) or rows_UD, third)
    nearest = third.numpy().astype(dtype.as_numpy_dtype).astype(np.float32)
    np.testing.assert_array_equal(table.gather(tf.constant([2])), nearest)
    slot = table.slots["accumulator"]
    assert (slot.rows, slot.columns) == (6, 1)
    assert table.bytes() == 12 * dtype.size + 6 * 4
    np.testing.assert_array_equal(all_rows(slot), np.full((6, 1), 0.5, np.float32))
    slot.assign(tf.constant([1]), tf.constant([[1.1]]))
    assert slot.gather(tf.constant([1])).numpy() == np.float32(1.1)
    assert table.is_finite()
    table.assign(tf.constant([5]), tf.constant([[1.0, float("inf")]]))
    assert not table.is_finite() and slot.is_finite()


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("initial", [tf.zeros, Constant(0.0), Constant(0.3), Uniform(0.5, 7)])
def test_it_starts_as_a_table_on_a_device_does(tmp_path, monkeypatch, initial, dtype):
    monkeypatch.setattr("app.tables.arrays._PART_BYTES", 64)  # several parts
    table = FileTable(opened(tmp_path / "rows"), "words", 101, 3, initial, dtype)
    np.testing.assert_array_equal(all_rows(table), all_rows(DeviceTable(101, 3, initial, dtype)))
    assert table.is_finite()
    table.assign(tf.constant([100]), tf.constant([[0.0, 1.0, float("nan")]]))
    assert not table.is_finite()


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=lambda dtype: dtype.name)
def test_it_rounds_at_random_as_a_table_on_a_device_does_also_after_a_kill(tmp_path, dtype):
    options = {"rounding": "stochastic", "slot_dtype": dtype, "seed": 5}
    options["slots"] = {"moment": Slot(0, 0.0)}

    def made(resume):
        table = FileTable(opened(tmp_path / "rows", resume), "words", 6, 2, given, dtype, **options)
        return table, tf.train.Checkpoint(table=table)

    def steps(table, count):
        third = tf.fill([3, 2], 1 / 3)
        for _ in range(count):
            table.assign(tf.constant([5, 0, 2]), third)
            table.assign(tf.constant([1, 2, 5]), 2 * third)
            table.slots["moment"].assign(tf.constant([5, 0, 2]), third)
        return all_rows(table), all_rows(table.slots["moment"])

    on_device = DeviceTable(6, 2, given, dtype, **options)
    table, saver = made(resume=False)
    np.testing.assert_array_equal(steps(table, 2), steps(on_device, 2))
    folder = tmp_path / "step"
    folder.mkdir()
    table.snapshot(folder)
    variables = saver.write(str(tmp_path / "variables"))
    table.commit([folder])
    expected = steps(table, 2)
    table, saver = made(resume=True)
    table.restore(folder)
    saver.read(variables).assert_consumed()
    np.testing.assert_array_equal(steps(table, 2), expected)
    np.testing.assert_array_equal(expected, steps(on_device, 2))

    cache = make_cache(table, 3)
    assert cache.writes.numpy() == table.writes.numpy() > 0 and cache.values.dtype == dtype
    rows = table.gather(tf.constant([5, 0, 2]))
    table.assign_exact(tf.constant([0, 1, 3]), rows)
    np.testing.assert_array_equal(table.gather(tf.constant([0, 1, 3])), rows)


def test_many_rows_at_once_go_where_they_belong(tmp_path):
    table = FileTable(opened(tmp_path / "rows"), "words", 20_000, 3, Uniform(1.0, 1))
    expected = all_rows(table)
    random = np.random.default_rng(0)
    ids = random.permutation(20_000)[:9_000]
    new = random.normal(size=(9_000, 3)).astype(np.float32)
    table.assign(ids, new)
    expected[ids] = new
    np.testing.assert_array_equal(all_rows(table), expected)
    np.testing.assert_array_equal(table.gather(np.sort(ids)), expected[np.sort(ids)])


def test_rows_of_a_snapshot_are_read_while_training_goes_on(table, tmp_path, monkeypatch):
    other = table.slots["accumulator"]
    folders = []
    for step in range(3):
        folders.insert(0, tmp_path / f"step-{step}")
        folders[0].mkdir()
        table.snapshot(folders[0])
        expected = all_rows(table)
        table.commit(folders)
        table.assign(tf.constant([step, 5]), tf.fill([2, 2], float(step + 100)))
        other.assign(tf.constant([step]), tf.constant([[1.0]]))
        np.testing.assert_array_equal(read_rows(tmp_path / "rows", folders[0], "words"), expected)
    used, temporary = [], tempfile.TemporaryFile
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda dir: used.append(dir) or temporary())
    for free in (1 << 30, 0):  # in memory, and in a file where that is short
        monkeypatch.setattr(machine, "free_bytes", lambda free=free: free)
        found = read_rows(tmp_path / "rows", folders[-1], "words")
        assert isinstance(found, np.memmap) == (not free)
        np.testing.assert_array_equal(found, ROWS)
    monkeypatch.setattr("os.access", lambda *_: False)  # a folder of another person
    read_rows(tmp_path / "rows", folders[-1], "words")
    assert used == [tmp_path, None]
    half = np.full((6, 1), 0.5, np.float32)
    np.testing.assert_array_equal(
        read_rows(tmp_path / "rows", folders[-1], "words.accumulator"), half
    )


def test_rows_that_cannot_be_read_are_told(table, tmp_path, monkeypatch):
    path, folder = tmp_path / "rows", tmp_path / "step"
    folder.mkdir()
    table.snapshot(folder)
    table.commit([folder])
    with pytest.raises(RunError, match="rows does not hold 'other'"):
        read_rows(path, folder, "other")
    with pytest.raises(RunError, match="is of another file"):
        FileTable(opened(tmp_path / "second"), "words", 6, 2, tf.zeros)
        read_rows(tmp_path / "second", folder, "words")
    with pytest.raises(RunError, match="none is not there; it holds the rows"):
        read_rows(tmp_path / "none", folder, "words")

    def move_on(*_):
        newer = tmp_path / "newer"
        newer.mkdir()
        table.snapshot(newer)
        table.commit([newer])
        return iter([])

    monkeypatch.setattr("app.tables.disk.sections.Section.parts", move_on)
    with pytest.raises(RunError, match="no longer keeps the checkpoint .*; run this again"):
        read_rows(path, folder, "words")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RunError, match="rows is truncated; it holds the rows"):
        read_rows(path, folder, "words")


def test_a_file_that_is_not_the_one_asked_for_is_refused(tmp_path):
    path = tmp_path / "rows"
    with pytest.raises(UsageError, match=f"^--table_file={path} is not there; to go on"):
        opened(path, resume=True)
    FileTable(opened(path), "words", 6, 2, tf.zeros, slots={"moment": Slot(2, 0.0)})
    for resume in (False, True):
        with pytest.raises(UsageError, match=f"^--table_file={path} belongs to another run; give"):
            opened(path, resume, owner="somebody")
    file = opened(path, resume=True)
    table = FileTable(file, "words", 6, 2, tf.zeros)
    for (rows, columns, dtype), held in (
        ((7, 2, tf.float32), "7 x 2 float32"),
        ((6, 3, tf.float32), "6 x 3 float32"),
        ((6, 2, tf.float16), "6 x 2 float16"),
    ):
        with pytest.raises(
            UsageError, match=f"holds 'words' as 6 x 2 float32, where {held} is asked for; give"
        ):
            FileTable(file, "words", rows, columns, tf.zeros, dtype)
    with pytest.raises(UsageError, match="does not hold 'words.other', where 6 x 1 float32 is"):
        FileTable(file, "words", 6, 2, tf.zeros, slots={"other": Slot(1, 0.0)})
    with pytest.raises(AssertionError, match="restore comes first"):
        table.assign(tf.constant([0]), tf.zeros([1, 2]))
    content = path.read_bytes()
    for size in (len(content) - 1, 70_000, 100):
        path.write_bytes(content[:size])
        with pytest.raises(UsageError, match=f"^--table_file={path} is truncated; to go on"):
            opened(path, resume=True)
    path.write_bytes(b"a text\n" * 10_000)
    with pytest.raises(UsageError, match=f"^--table_file={path} is no file of rows; to go on"):
        opened(path)
    assert path.read_bytes() == b"a text\n" * 10_000
    path.write_bytes(b"")
    with pytest.raises(UsageError, match=f"^--table_file={path} is no file of rows; to go on"):
        opened(path, resume=True)
    opened(path)  # a new run may have an empty file
    with pytest.raises(UsageError, match=f"{tmp_path} cannot be read: Is a directory; to go on"):
        opened(tmp_path)


def test_a_disk_without_room_is_told_before_training(tmp_path):
    file = opened(tmp_path / "rows")
    FileTable(file, "words", 6, 2, tf.zeros)
    with pytest.raises(RunError, match="rows: No space left on device: 'more' takes 4,000,"):
        FileTable(file, "more", 10**9, 10**9, tf.zeros)
    assert not (tmp_path / "rows").exists()


def test_a_disk_without_room_for_slots_keeps_trained_rows(tmp_path):
    file = opened(tmp_path / "rows")
    table = FileTable(file, "words", 6, 2, tf.zeros)
    table.assign(tf.constant([4]), tf.constant([[7.0, 8.0]]))
    with pytest.raises(RunError, match="rows: No space left on device: 'more' takes 4,000,"):
        FileTable(file, "more", 10**9, 10**9, tf.zeros)
    np.testing.assert_array_equal(table.gather(tf.constant([4])), [[7, 8]])
    FileTable(file, "few", 6, 2, tf.zeros)


def test_all_rows_are_mapped_from_the_file(table):
    rows_VD = table.mapped()
    assert rows_VD.dtype == table.dtype.as_numpy_dtype
    np.testing.assert_array_equal(rows_VD.astype(np.float32), all_rows(table))
    table.assign(tf.constant([4]), tf.constant([[7.0, 8.0]]))
    np.testing.assert_array_equal(rows_VD[4].astype(np.float32), [7, 8])
