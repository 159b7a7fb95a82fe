from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from app.errors import DamagedError, RunError, UsageError
from app.tables import journal
from app.tables.file import read_rows
from app.tables.table_file import TableFile

ROWS, COLUMNS = 40, {"words": 3, "words.moment": 1}

EVERY, KEEP = 2, 3  # steps between checkpoints, and how many of these are kept


class Run:
    """Trains as a run does: rows of both sections at every step, a checkpoint now and then."""

    def __init__(self, folder):
        self.folder = folder
        found = checkpoints(folder)
        self.file = TableFile(folder / "rows", "me", resume=bool(found))
        self.numbers = [
            self.file.section(name, ROWS, columns, tf.zeros, tf.float32)
            for name, columns in COLUMNS.items()
        ]
        self.step = 0
        if found:
            self.step = int(found[0].name.removeprefix("step-"))
            self.file.revert(found[0])

    def train(self, steps):
        while self.step < steps:
            self.step += 1
            for number, (ids_U, rows_UD) in zip(self.numbers, changes(self.step), strict=True):
                self.file.write(number, ids_U, lambda rows_UD=rows_UD: rows_UD)
            if self.step % EVERY == 0:
                self.save()

    def save(self):
        temporary, path = self.folder / "new", self.folder / f"step-{self.step:06d}"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        self.file.snapshot(temporary)
        temporary.rename(path)
        for old in checkpoints(self.folder)[KEEP:]:
            shutil.rmtree(old)
        for _ in COLUMNS:
            self.file.committed(checkpoints(self.folder))

    def rows(self):
        return [self.file.read(number, np.arange(ROWS)) for number in self.numbers]


def checkpoints(folder):
    return sorted(folder.glob("step-*"), reverse=True)


def changes(step):
    """The ids and the rows that a step writes to each section."""
    random = np.random.default_rng(step)
    for columns in COLUMNS.values():
        ids_U = random.choice(ROWS, 5, replace=False)
        yield ids_U, random.normal(size=(5, columns)).astype(np.float32)


def assert_same(found, expected):
    for found_VD, expected_VD in zip(found, expected, strict=True):
        np.testing.assert_array_equal(found_VD, expected_VD)


@pytest.mark.parametrize("what", ["journal", "another file", "snapshot"])
def test_what_cannot_be_undone_is_told(tmp_path, what):
    run = Run(tmp_path)
    run.train(EVERY)
    (found,) = checkpoints(tmp_path)
    if what == "journal":
        journal.journal_path(tmp_path / "rows", 1).unlink()
    elif what == "snapshot":
        (found / "file.json").write_text('{"identity"')
    else:
        held = json.loads((found / "file.json").read_text())
        (found / "file.json").write_text(json.dumps({**held, "identity": "other"}))
    expected = RunError if what == "another file" else DamagedError
    with pytest.raises(RunError) as raised:
        Run(tmp_path)
    assert type(raised.value) is expected
    with pytest.raises(expected):
        read_rows(tmp_path / "rows", found, "words")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (Path.unlink, r"cannot be read \(No such file or directory\)"),
        (lambda path: path.rename(path.with_name("moved")), r"cannot be read \(No such file"),
        (lambda path: os.truncate(path, 70_000), "was cut short"),
        (lambda path: os.truncate(path, 0), "was cut short"),
        (lambda path: shutil.move(shutil.copy(path, f"{path}.new"), path), "was replaced by"),
    ],
    ids=["removed", "renamed", "cut short", "emptied", "replaced"],
)
def test_a_file_that_goes_while_it_is_used_is_told(tmp_path, change, told):
    run = Run(tmp_path)
    run.train(EVERY)
    change(tmp_path / "rows")
    folder = tmp_path / "other"
    folder.mkdir()
    acts = [
        lambda: list(run.file.parts(0)),
        lambda: run.file.snapshot(folder),
        lambda: run.file.section("more", ROWS, 3, tf.zeros, tf.float32),
    ]
    if told == "was cut short":
        acts += [
            lambda: run.file.read(0, np.arange(3)),
            lambda: run.file.write(0, np.arange(3), lambda: np.zeros((3, 3), np.float32)),
        ]
    for act in acts:
        with pytest.raises(RunError, match=f"^--table_file={tmp_path}/rows {told}.* while it was"):
            act()
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    ("header", "told"),
    [
        (b"{", "is damaged: its header is no JSON"),
        (b"[" * 60_000, "is damaged: its header is no JSON"),
        (b"[1]", "is damaged: its header lacks a field, or has a wrong one"),
        (b'{"owner": "me", "identity": "a"}', "is damaged: its header lacks a field"),
        (
            b'{"owner": "me", "identity": "a", "sections": [{"name": "words", "rows": 40, '
            b'"columns": 3, "dtype": "float32", "offset": 69632}]}',
            "is damaged: its sections are not one after the other",
        ),
    ],
    ids=["cut", "nested", "list", "fields", "offset"],
)
def test_a_damaged_header_is_told(tmp_path, header, told):
    run = Run(tmp_path)
    run.train(EVERY)
    path = tmp_path / "rows"
    content = path.read_bytes()
    path.write_bytes((b"lexrow rows 1\n" + header).ljust(65536, b"\0") + content[65536:])
    with pytest.raises(UsageError, match=f"^--table_file={path} {told}"):
        Run(tmp_path)
    with pytest.raises(RunError, match=f"^{path} {told}"):
        read_rows(path, checkpoints(tmp_path)[0], "words")


@pytest.mark.parametrize("change", [Path.unlink, lambda path: os.truncate(path, 3)])
def test_a_journal_that_is_changed_while_it_is_used_is_told(tmp_path, change):
    run = Run(tmp_path)
    run.train(EVERY + 1)
    change(journal.journal_path(tmp_path / "rows", 1))
    before = run.rows()
    new = np.flatnonzero(~run.file._journalled[0])
    with pytest.raises(RunError, match=r"rows\.undo-1.*(No such file|changed by another program)"):
        run.file.write(0, new, lambda: np.ones((len(new), 3), np.float32))
    assert_same(run.rows(), before)
