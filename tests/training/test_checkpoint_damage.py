from __future__ import annotations

import errno
import logging
import os

import pytest
import tensorflow as tf

from app.errors import DamagedError, RunError
from app.tables.device import DeviceTable
from app.training import checkpoint, stored
from app.training.checkpoint import Checkpoints, Position


def read_rows(folder, name):
    """The rows of a table in the newest checkpoint."""
    return checkpoint.of_newest(folder, lambda path: stored.read_ids(path, name))[1]


@pytest.fixture
def tables():
    """Two tables, one with a slot, that `fill` sets to a number."""
    found = {name: DeviceTable(50, 8, tf.zeros) for name in ("input", "output")}
    found["input"].slot("accumulator", 1, 0.5)
    return found


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


def cut(path):
    path.write_bytes(path.read_bytes()[:-9])


def flip(path):
    content = bytearray(path.read_bytes())
    for place in range(0, len(content), 97):
        content[place] ^= 255
    path.write_bytes(content)


DAMAGES = {
    "data cut": ("tables.data-00000-of-00001", cut),
    "data empty": ("tables.data-00000-of-00001", lambda path: path.write_bytes(b"")),
    "data flipped": ("tables.data-00000-of-00001", flip),
    "data missing": ("tables.data-00000-of-00001", lambda path: path.unlink()),
    "index cut": ("tables.index", cut),
    "index flipped": ("tables.index", flip),
    "index empty": ("tables.index", lambda path: path.write_bytes(b"")),
    "index missing": ("tables.index", lambda path: path.unlink()),
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


@pytest.mark.parametrize("file", ["tables.data-00000-of-00001", "tables.index"])
def test_rows_are_read_from_the_newest_whole_one(tmp_path, tables, file):
    save(tmp_path, tables, [5, 6])
    flip(tmp_path / "step-000000000006" / file)
    assert read_rows(tmp_path, "input")[0, 0] == 5
    assert len(names(tmp_path)) == 2
    flip(tmp_path / "step-000000000005" / file)
    with pytest.raises(RunError, match="every checkpoint is damaged"):
        read_rows(tmp_path, "input")


def content(folder):
    """Every path below a folder, with the bytes of those that are files."""
    return {p: p.is_file() and p.read_bytes() for p in sorted(folder.rglob("*"))}


FILES = ["state.json", "tables.json", "tables.index", "tables.data-00000-of-00001"]


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
    "no memory in TensorFlow": (
        tf.errors.ResourceExhaustedError(None, None, "OOM when allocating"),
        RunError,
        "OOM when allocating; mend that",
    ),
    "our bug": (TypeError("a mistake"), TypeError, "a mistake"),
    "another process is gone": (
        tf.errors.UnavailableError(None, None, "socket closed"),
        tf.errors.UnavailableError,
        "socket closed",
    ),
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
        patched.setattr(tf.train.Checkpoint, "read", fail)
        with pytest.raises(kind, match=told) as raised:
            checkpoints.restore()
    assert not isinstance(raised.value, DamagedError)
    assert content(tmp_path) == before
    assert checkpoints.restore().step == 6


def test_a_slot_that_is_not_there_is_no_damage(tmp_path, tables):
    checkpoints = save(tmp_path, tables, [5, 6])
    before = content(tmp_path)
    tables["output"].slot("moment", 8, 0.0)
    with pytest.raises(RunError, match="000006 holds no slot 'moment' of table 'output'; give the"):
        checkpoints.restore()
    assert content(tmp_path) == before


def test_a_reader_goes_on_with_what_a_running_job_has_saved_meanwhile(tmp_path, tables, caplog):
    save(tmp_path, tables, [5])
    seen = []

    def read(path):
        seen.append(path.name)
        if len(seen) == 1:
            save(tmp_path, tables, [6], keep=1)
        return stored.read_ids(path, "input")[1][0, 0]

    with caplog.at_level(logging.WARNING, logger="absl"):
        assert checkpoint.of_newest(tmp_path, read) == 6
    assert seen == ["step-000000000005", "step-000000000006"]
    assert not caplog.records


def test_all_damaged(tmp_path, tables):
    checkpoints = save(tmp_path, tables, [5, 6])
    for path in tmp_path.iterdir():
        (path / "state.json").unlink()
    with pytest.raises(RunError, match="^every checkpoint in .* is damaged; train in"):
        checkpoints.restore()
    assert names(tmp_path) == ["step-000000000005", "step-000000000006"]
    assert checkpoint.newest_position(tmp_path) is None
