"""Checkpoints that cannot be read, are not what is asked for, or go while they are read."""

from __future__ import annotations

import errno
import logging
import os

import pytest
import tensorflow as tf

from app.checkpoints import checkpoint, stored
from app.checkpoints.checkpoint import Checkpoints, Position
from app.errors import DamagedError, RunError
from app.tables import sharded
from app.tables.base import Slot
from app.tables.device import DeviceTable
from app.tables.disk.file import FileTable
from app.tables.disk.table_file import TableFile
from app.tables.variable import named_variables
from tests.checkpoints.test_checkpoint import make_tables, names, save


@pytest.fixture
def tables():
    return make_tables()


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
    save(tmp_path, tables, [5, 6])
    before = content(tmp_path)
    more = {"output": DeviceTable(50, 8, tf.zeros, slots={"moment": Slot(8, 0.0)})}
    checkpoints = Checkpoints(tmp_path, tables | more)
    with pytest.raises(RunError, match="000006 holds no slot 'moment' of table 'output'; give the"):
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
