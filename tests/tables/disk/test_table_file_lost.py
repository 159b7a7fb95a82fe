from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from app.errors import DamagedError, RunError, UsageError
from app.tables.disk import journal
from app.tables.disk.file import read_rows
from tests.tables.disk.test_table_file import Run, assert_same, checkpoints

ROWS, COLUMNS = 40, {"words": 3, "words.moment": 1}

EVERY, KEEP = 2, 3  # steps between checkpoints, and how many of these are kept


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
        lambda: run.file.checked_section(0),
        lambda: run.file.snapshot(folder),
        lambda: run.file.section("more", ROWS, 3, tf.zeros, tf.float32),
    ]
    if told == "was cut short":
        acts += [
            lambda: run.file.read(0, np.arange(3)),
            lambda: run.file.write(0, np.arange(3), np.zeros((3, 3), np.float32)),
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
        run.file.write(0, new, np.ones((len(new), 3), np.float32))
    assert_same(run.rows(), before)
