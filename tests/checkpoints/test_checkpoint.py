import errno
import itertools
import json
import logging
import os
import shutil
import signal

import numpy as np
import pytest
import tensorflow as tf

from app.checkpoints import checkpoint, growth, stored
from app.checkpoints.checkpoint import Position
from app.checkpoints.growth import RowMap
from app.checkpoints.table_checkpoints import Checkpoints
from app.errors import DamagedError, RunError
from app.tables import arrays, sharded
from app.tables.base import Slot, TableSpec
from app.tables.device import DeviceTable, named_variables
from app.tables.disk.file import FileTable
from app.tables.disk.table_file import TableFile
from app.tables.initial import Constant


def save_alone(folder, table):
    """Save a table, and return its checkpoints."""
    Checkpoints(folder, {"input": table}).save(Position(step=1))
    return checkpoint.list_checkpoints(folder)


def read_rows(folder, name):
    """The rows of a table in the newest checkpoint."""
    return checkpoint.read_newest(folder, lambda path: stored.read_ids(path, name))[1]


def make_tables():
    """Two tables, one with a slot, that `fill` sets to a number."""
    slots = {"input": {"accumulator": Slot(1, 0.5)}, "output": {}}
    return {name: DeviceTable(50, 8, tf.zeros, slots=slots[name]) for name in slots}


@pytest.fixture
def tables():
    return make_tables()


def variables(tables):
    return [tables["input"].values, tables["input"].slots["accumulator"].values] + [
        tables["output"].values
    ]


def fill(tables, number):
    for index, variable in enumerate(variables(tables)):
        variable.assign(tf.fill(variable.shape, float(number + index)))


def values(tables):
    return [float(variable[-1, -1]) for variable in variables(tables)]


def save(folder, tables, steps, keep=9):
    checkpoints = Checkpoints(folder, tables, keep)
    for step in steps:
        fill(tables, step)
        checkpoints.save(Position(step=step, epoch=1, batch=2, batches=5, words=0.1, seconds=1 / 3))
    return checkpoints


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_was_saved_comes_back(tmp_path, tables):
    checkpoints = save(tmp_path, tables, [7])
    fill(tables, 0)
    expected = Position(step=7, epoch=1, batch=2, batches=5, words=0.1, seconds=1 / 3)
    assert checkpoints.restore() == expected
    assert values(tables) == [7, 8, 9]
    np.testing.assert_array_equal(read_rows(tmp_path, "output"), np.full((50, 8), 9.0))
    assert read_rows(tmp_path, "input").dtype == np.float32
    assert checkpoint.newest_position(tmp_path) == expected


def test_nothing_saved_yet(tmp_path, tables):
    folder = tmp_path / "none"
    assert Checkpoints(folder, tables).restore() is None
    assert checkpoint.newest_position(folder) is None
    with pytest.raises(RunError, match="none: there is no checkpoint; run `lexrow train`"):
        read_rows(folder, "input")


def test_the_newest_are_kept(tmp_path, tables):
    save(tmp_path, tables, [5, 50, 500, 5000], keep=2)
    assert names(tmp_path) == ["step-000000000500", "step-000000005000"]


def test_a_step_is_saved_once(tmp_path, tables):
    checkpoints = save(tmp_path, tables, [5])
    fill(tables, 0)
    checkpoints.save(Position(step=5))
    checkpoints.restore()
    assert values(tables) == [5, 6, 7]


def cut(path):
    path.write_bytes(path.read_bytes()[:-9])


def flip(path):
    content = bytearray(path.read_bytes())
    for place in range(0, len(content), 97):
        content[place] ^= 255
    path.write_bytes(content)


DAMAGES = {
    "rows cut": ("input/values", cut),
    "rows empty": ("input/values", lambda path: path.write_bytes(b"")),
    "rows flipped": ("input/values", flip),
    "rows missing": ("input/values", lambda path: path.unlink()),
    "slot flipped": ("input/accumulator", flip),
    "manifest cut": ("output/values.json", cut),
    "manifest flipped": ("output/values.json", flip),
    "manifest missing": ("output/values.json", lambda path: path.unlink()),
    "manifest of others": ("output/values.json", lambda path: path.write_text('{"rows": 1}')),
    "layouts flipped": ("tables.json", flip),
    "state missing": ("state.json", lambda path: path.unlink()),
    "state cut": ("state.json", cut),
    "state no text": ("state.json", lambda path: path.write_bytes(b"\xff\0")),
    "state a list": ("state.json", lambda path: path.write_text("[1]")),
    "state of others": ("state.json", lambda path: path.write_text('{"stage": 1}')),
}


@pytest.mark.parametrize(("file", "damage"), DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_one_gives_way_to_the_one_before(tmp_path, tables, caplog, file, damage):
    checkpoints = save(tmp_path, tables, [5, 6], keep=2)
    damage(tmp_path / "step-000000000006" / file)
    fill(tables, 0)
    with caplog.at_level(logging.WARNING, logger="absl"):
        assert checkpoints.restore().step == 5
    assert values(tables) == [5, 6, 7]
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1 and "\n" not in told[0]
    expected = f"{tmp_path}/step-000000000006 is damaged, trying the one before it: "
    assert told[0].startswith(expected) and len(told[0]) > len(expected)
    # The damaged one neither keeps its step from being saved anew nor counts among the newest.
    assert names(tmp_path) == ["damaged-step-000000000006", "step-000000000005"]
    save(tmp_path, tables, [6, 7], keep=2)
    assert names(tmp_path)[1:] == ["step-000000000006", "step-000000000007"]
    fill(tables, 0)
    assert checkpoints.restore().step == 7
    assert values(tables) == [7, 8, 9]


@pytest.mark.parametrize("file", ["input/values", "input/values.json"])
def test_rows_are_read_from_the_newest_whole_one(tmp_path, tables, file):
    save(tmp_path, tables, [5, 6])
    flip(tmp_path / "step-000000000006" / file)
    assert read_rows(tmp_path, "input")[0, 0] == 5
    assert len(names(tmp_path)) == 2
    flip(tmp_path / "step-000000000005" / file)
    with pytest.raises(RunError, match=f"^every checkpoint in {tmp_path} is damaged; train"):
        read_rows(tmp_path, "input")


@pytest.mark.parametrize("name", ["a[b]", "[!x]", "a\\b", "a*", "a?b", "a[b]*\\?"])
def test_a_path_may_have_any_characters(tmp_path, tables, name):
    folder = tmp_path / name / "checkpoints"
    checkpoints = save(folder, tables, [5, 6])
    fill(tables, 0)
    assert checkpoints.restore().step == 6
    assert values(tables) == [6, 7, 8]
    assert read_rows(folder, "input")[0, 0] == 6
    flip(folder / "step-000000000006" / "input/values")
    assert checkpoints.restore().step == 5
    assert values(tables) == [5, 6, 7]
    assert names(folder)[0] == "damaged-step-000000000006"


def test_all_damaged(tmp_path, tables, caplog):
    checkpoints = save(tmp_path, tables, [5, 6])
    for path in tmp_path.iterdir():
        (path / "state.json").unlink()
    with pytest.raises(RunError, match="^every checkpoint in .* is damaged; train in"):
        checkpoints.restore()
    newest, oldest = (record.getMessage() for record in caplog.records)
    assert newest.startswith(f"{tmp_path}/step-000000000006 is damaged, trying the one before it: ")
    assert oldest.startswith(f"{tmp_path}/step-000000000005 is damaged: ")
    assert names(tmp_path) == ["step-000000000005", "step-000000000006"]
    assert checkpoint.newest_position(tmp_path) is None


def test_reading_leaves_the_folder_as_it_is_and_needs_no_slots(tmp_path, tables):
    save(tmp_path, tables, [5, 6])
    flip(tmp_path / "step-000000000006" / "input/values")
    plain = {name: DeviceTable(50, 8, tf.zeros) for name in tables}
    assert Checkpoints(tmp_path, plain).read().step == 5
    assert [float(table.values[-1, -1]) for table in plain.values()] == [5, 7]
    assert names(tmp_path) == ["step-000000000005", "step-000000000006"]
    (tmp_path / "step-000000000005" / "state.json").unlink()
    with pytest.raises(RunError, match="^every checkpoint in .* is damaged; train in a new"):
        Checkpoints(tmp_path, plain).read()
    with pytest.raises(
        RunError, match="there is no checkpoint; run `lexrow train` with this workdir"
    ):
        Checkpoints(tmp_path / "none", plain).read()


def slotted(columns, width):
    """A table under the name `input`, and its slot of another width."""
    return {"input": DeviceTable(50, columns, tf.zeros, slots={"accumulator": Slot(width, 0.5)})}


@pytest.mark.parametrize(
    ("other", "what", "wanted"),
    [
        (lambda: {"output": DeviceTable(51, 8, tf.zeros)}, "output/values has .*50, 8", "51, 8"),
        (lambda: slotted(9, 1), "input/values has .*50, 8", "50, 9"),
        (lambda: slotted(8, 8), "input/accumulator has .*50, 1", "50, 8"),
    ],
)
def test_tables_of_another_shape_are_not_taken(tmp_path, tables, other, what, wanted):
    save(tmp_path, tables, [5, 6])
    message = rf"step-000000000006/{what}\), where \({wanted}\) is asked for; give the flags"
    with pytest.raises(RunError, match=message) as raised:
        Checkpoints(tmp_path, other()).restore()
    assert "\n" not in str(raised.value)
    assert names(tmp_path) == ["step-000000000005", "step-000000000006"]


def test_the_shapes_of_every_slot_are_compared(tables):
    places = [place for place, _ in named_variables(tables["input"])]
    assert sorted(places) == [("slots", "accumulator", "values"), ("values",)]


@pytest.mark.parametrize("make", [DeviceTable, lambda *how: sharded.make(*how, ["CPU:0"] * 2)])
def test_the_first_rows_alone_are_read(tmp_path, monkeypatch, make):
    monkeypatch.setattr(arrays, "_BLOCK_BYTES", 100)  # three rows
    table = make(50, 8, tf.random.normal)
    (folder,) = save_alone(tmp_path, table)
    whole = stored.read_rows(folder, "input")
    np.testing.assert_array_equal(whole, table.gather(tf.range(50)))
    for most in (1, 3, 4, 26, 50, 60):
        ids_N, rows_ND = stored.read_ids(folder, "input", most=most)
        assert ids_N.tolist() == [*range(min(most, 50))]
        np.testing.assert_array_equal(rows_ND, whole[:most])


def test_what_a_killed_writer_left_is_no_checkpoint(tmp_path, tables):
    checkpoints = save(tmp_path, tables, [5])
    shutil.copytree(tmp_path / "step-000000000005", tmp_path / ".step-000000000006.new-00aa11bb")
    assert checkpoints.restore().step == 5
    assert [path.name for path in checkpoint.list_checkpoints(tmp_path)] == ["step-000000000005"]


def test_a_save_that_fails_loses_nothing(tmp_path, tables, monkeypatch):
    checkpoints = save(tmp_path, tables, [5], keep=1)

    def full(path, parts):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(arrays, "write", full)
    with pytest.raises(RunError) as raised:
        checkpoints.save(Position(step=6))
    assert str(raised.value) == (
        f"cannot write {tmp_path}/step-000000000006: No space left on device; "
        "free the disk or choose another folder"
    )
    assert names(tmp_path) == ["step-000000000005"]


class _Kept:
    """What saves itself; `told` are the folders of which it learnt that they are kept."""

    told = ()

    def layout(self):
        return {"kind": "dynamic"}

    def snapshot(self, folder):
        (folder / "all").touch()

    def commit(self, folders):
        self.told = folders

    def restore(self, folder):
        assert (folder / "all").exists()


def test_a_kill_before_the_end_of_a_save_is_made_up_for(tmp_path, tables, monkeypatch):
    kept, place = {**tables, "kept": _Kept()}, tmp_path / "step-000000000005"
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(_Kept, "commit", lambda *_: signal.raise_signal(signal.SIGINT))
        save(tmp_path, kept, [5])
    assert save(tmp_path, kept, []).restore().step == 5
    save(tmp_path, kept, [5])
    assert kept["kept"].told == [place / "kept"]
    # A table that came to be of this kind after the checkpoint has no snapshot there.
    later = {**kept, "input": _Kept()}
    Checkpoints(tmp_path, later).save(Position(step=5))
    assert later["input"].told == ()


def test_a_position_is_plain_json(tmp_path, tables):
    save(tmp_path, tables, [5])
    state = json.loads((tmp_path / "step-000000000005/state.json").read_text())
    assert state["step"] == 5 and set(state) == set(vars(Position()))


def test_how_much_is_done():
    assert Position().done == 0
    assert Position(epoch=2, batch=1, batches=4).done == 2.25
    # An epoch may turn out longer than expected.
    assert Position(epoch=2, batch=9, batches=4).done == 3


def content(folder):
    """Every path below a folder, with the bytes of those that are files."""
    return {p: p.is_file() and p.read_bytes() for p in sorted(folder.rglob("*"))}


FILES = ["state.json", "tables.json", "input/values.json", "input/values"]


@pytest.mark.parametrize("file", FILES)
def test_a_file_that_cannot_be_opened_is_not_damaged(tmp_path, tables, file):
    checkpoints = save(tmp_path, tables, [5, 6])
    path = tmp_path / "step-000000000006" / file
    path.rename(tmp_path / "whole")
    path.symlink_to(path)  # which the system refuses to follow, whoever asks
    before = names(tmp_path)
    told = f"^cannot read {path}: Too many levels of symbolic links; mend that and run this again"
    for read in (checkpoints.restore, checkpoints.read):
        with pytest.raises(RunError, match=told) as raised:
            read()
        assert not isinstance(raised.value, DamagedError)
    assert names(tmp_path) == before


def test_a_folder_that_cannot_be_read_is_not_empty(tmp_path, tables, monkeypatch):
    checkpoints = save(tmp_path, tables, [5])

    def refuse(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(os, "listdir", refuse)
    for read in (checkpoints.restore, lambda: checkpoint.newest_position(tmp_path)):
        with pytest.raises(RunError, match=f"^cannot read {tmp_path}: Permission denied; make it"):
            read()


FAILURES = {
    "no memory": (MemoryError(), RunError, "not enough memory to read"),
    "a disk": (OSError(errno.EIO, os.strerror(errno.EIO)), RunError, "cannot read .*output error;"),
    "our bug": (TypeError("a mistake"), TypeError, "a mistake"),
    "our bug with a value": (ValueError("a mistake"), ValueError, "^a mistake"),
}


@pytest.mark.parametrize(("failure", "kind", "told"), FAILURES.values(), ids=FAILURES.keys())
def test_what_is_no_damage_is_told_as_what_it_is(
    tmp_path, tables, monkeypatch, failure, kind, told
):
    checkpoints = save(tmp_path, tables, [5, 6])
    before = content(tmp_path)

    def fail(*_):
        raise failure

    with monkeypatch.context() as patched:
        patched.setattr(DeviceTable, "restore", fail)
        with pytest.raises(kind, match=told) as raised:
            checkpoints.restore()
    assert not isinstance(raised.value, DamagedError)
    assert content(tmp_path) == before
    assert checkpoints.restore().step == 6


def test_a_slot_that_is_not_there_is_no_damage(tmp_path, tables):
    save(tmp_path, tables, [5, 6])
    before = content(tmp_path)
    more = {"output": DeviceTable(50, 8, tf.zeros, slots={"moment": Slot(8, 0.0)})}
    checkpoints = Checkpoints(tmp_path, tables | more)
    with pytest.raises(RunError, match="000006/output holds no 'moment'; give the"):
        checkpoints.restore()
    assert content(tmp_path) == before


@pytest.mark.parametrize("kind", ["device", "sharded", "file"])
def test_rounding_may_become_stochastic(tmp_path, kind):
    def make(rounding):
        options = {"dtype": tf.bfloat16, "rounding": rounding, "slot_dtype": tf.bfloat16}
        options["slots"] = {"moment": Slot(8, 0.5)}
        if kind == "sharded":
            return sharded.make(50, 8, tf.zeros, ["CPU:0", "CPU:0"], **options)
        if kind == "file":
            file = TableFile(tmp_path / "rows", "owner", resume=rounding == "stochastic")
            return FileTable(file, "input", 50, 8, tf.zeros, **options)
        return DeviceTable(50, 8, tf.zeros, **options)

    nearest = make("nearest")
    nearest.assign(tf.range(50), tf.fill([50, 8], 3.0))
    Checkpoints(tmp_path / "of", {"input": nearest}).save(Position(step=1))
    table, seven = make("stochastic"), tf.constant([7])
    counts = [variable for place, variable in named_variables(table) if place[-1] == "writes"]
    assert counts and Checkpoints(tmp_path / "of", {"input": table}).restore().step == 1
    assert [int(count) for count in counts] == [0] * len(counts)
    assert float(table.gather(seven)[0, 0]) == 3 and float(
        table.slots["moment"].gather(seven)[0, 0]
    )
    table.assign(seven, tf.fill([1, 8], 1.001))
    Checkpoints(tmp_path / "of", {"input": table}).save(Position(step=2))
    assert Checkpoints(tmp_path / "of", {"input": table}).restore().step == 2
    assert sum(int(count) for count in counts) > 0


def test_a_reader_goes_on_with_what_a_running_job_has_saved_meanwhile(tmp_path, tables, caplog):
    save(tmp_path, tables, [5])
    seen = []

    def read(path):
        seen.append(path.name)
        if len(seen) == 1:
            save(tmp_path, tables, [6], keep=1)
        return stored.read_ids(path, "input")[1][0, 0]

    with caplog.at_level(logging.WARNING, logger="absl"):
        assert checkpoint.read_newest(tmp_path, read) == 6
    assert seen == ["step-000000000005", "step-000000000006"]
    assert not caplog.records


def test_one_of_an_earlier_version_is_read_or_found_damaged(tmp_path, tables):
    """Until November 2026, TensorFlow saved the tables; tests/golden has whole workdirs of then."""
    folder = tmp_path / "step-000000000005"
    folder.mkdir()
    fill(tables, 5)
    tf.train.Checkpoint(**tables).write(str(folder / "tables"))
    checkpoint.write_position(folder, Position(step=5))
    fill(tables, 0)
    assert Checkpoints(tmp_path, tables).restore().step == 5
    assert values(tables) == [5, 6, 7]
    assert stored.count_rows(folder, "input") == 50
    more = {"output": DeviceTable(50, 8, tf.zeros, slots={"moment": Slot(8, 0.0)})}
    with pytest.raises(RunError, match="holds no slot 'moment' of table 'output'; give the flags"):
        Checkpoints(tmp_path, more).restore()
    (data,) = folder.glob("tables.data*")
    shutil.copytree(folder, tmp_path / "a[1]" / folder.name)
    assert Checkpoints(tmp_path / "a[1]", tables).restore().step == 5, "the name is no pattern"
    whole = (folder / data.name).read_bytes()
    for content in (b"", whole[: len(whole) // 2]):
        (folder / data.name).write_bytes(content)
        with pytest.raises(RunError, match=f"every checkpoint in {tmp_path} is damaged"):
            Checkpoints(tmp_path, tables).restore()
    (folder / data.name).write_bytes(whole)
    flip(folder / "tables.index")
    with pytest.raises(RunError, match=f"every checkpoint in {tmp_path} is damaged"):
        Checkpoints(tmp_path, tables).restore()


def counting(kind, folder, rows=5):
    """A table of this kind that counts draws, as does its slot."""
    options = {"dtype": tf.bfloat16, "slot_dtype": tf.bfloat16, "rounding": "stochastic"}
    options["slots"] = {"moment": Slot(0, 0.0)}
    if kind == "file":
        file = TableFile(folder / f"rows{len(os.listdir(folder))}", "owner", resume=False)
        return FileTable(file, "input", rows, 3, Constant(0.0), **options)
    if kind == "sharded":
        return sharded.make(rows, 3, Constant(0.0), ["CPU:0"] * 2, **options)
    return DeviceTable(rows, 3, Constant(0.0), **options)


def draw(table):
    for _ in range(4):
        table.assign(tf.range(5), tf.ones([5, 3]))
    table.slots["moment"].assign(tf.range(5), tf.ones([5, 3]))


def counts(table):
    """The counts of draws of a table, and of its slot; of each shard, where it has some."""
    parts = table.parts if isinstance(table, sharded.ShardedTable) else [table]
    return {(int(part.writes), int(part.slots["moment"].writes)) for part in parts}


KINDS = "device", "sharded", "file"


@pytest.mark.parametrize(("before", "now"), [*itertools.permutations(KINDS, 2)])
def test_another_kind_of_table_goes_on_with_the_count_of_draws(tmp_path, before, now):
    table, again = counting(before, tmp_path), counting(now, tmp_path)
    draw(table)
    Checkpoints(tmp_path / "of", {"input": table}).save(Position(step=1))
    Checkpoints(tmp_path / "of", {"input": again}).restore()
    assert counts(again) == {(4, 1)}


def test_a_grown_table_goes_on_with_the_count_of_draws(tmp_path):
    table, grown = counting("device", tmp_path), counting("device", tmp_path, rows=7)
    draw(table)
    (folder,) = save_alone(tmp_path / "of", table)
    maps, specs = {"input": RowMap(np.arange(5), 7)}, {"input": TableSpec(7, 3, Constant(0.0))}
    growth._fill_tables(folder, maps, specs, {"input": grown})
    assert counts(grown) == {(4, 1)}


@pytest.mark.parametrize("kind", ["device", "sharded"])
def test_one_of_an_earlier_version_has_the_count_of_draws(tmp_path, kind):
    table, again = counting(kind, tmp_path), counting(kind, tmp_path)
    draw(table)
    folder = tmp_path / "step-000000000005"
    folder.mkdir()
    tf.train.Checkpoint(input=table).write(str(folder / "tables"))
    (folder / stored.LAYOUTS).write_text(json.dumps({"input": table.layout()}))
    checkpoint.write_position(folder, Position(step=5))
    Checkpoints(tmp_path, {"input": again}).restore()
    assert counts(again) == {(4, 1)}


def test_one_without_the_folder_of_a_table_is_damaged(tmp_path, tables, caplog):
    save(tmp_path, tables, [5, 6])
    shutil.rmtree(tmp_path / "step-000000000006" / "input")
    assert Checkpoints(tmp_path, tables).restore().step == 5
    assert "input is missing" in caplog.text
