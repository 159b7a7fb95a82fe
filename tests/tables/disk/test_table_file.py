import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from app.errors import DamagedError, RunError, UsageError
from app.tables.disk.file import read_rows
from app.tables.disk.sections import Section
from app.tables.disk.table_file import (
    Journal,
    TableFile,
    journal_path,
    list_journals,
    list_journals_to_undo,
    records,
)

ROWS, COLUMNS = 40, {"words": 3, "words.moment": 1}

SECTIONS = [Section(name, ROWS, columns, "float32", 0) for name, columns in COLUMNS.items()]

EVERY, KEEP = 2, 3  # steps between checkpoints, and how many of these are kept

ROOT = Path(__file__).parents[3]


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
            self.file.restore(found[0])

    def train(self, steps):
        while self.step < steps:
            self.step += 1
            for number, (ids_U, rows_UD) in zip(self.numbers, changes(self.step), strict=True):
                self.file.write(number, ids_U, rows_UD)
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
            self.file.commit(checkpoints(self.folder))

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


def after(steps):
    """The rows of each section after so many steps."""
    rows = [np.zeros((ROWS, columns), np.float32) for columns in COLUMNS.values()]
    for step in range(1, steps + 1):
        for rows_VD, (ids_U, new_UD) in zip(rows, changes(step), strict=True):
            rows_VD[ids_U] = new_UD
    return rows


def assert_same(found, expected):
    for found_VD, expected_VD in zip(found, expected, strict=True):
        np.testing.assert_array_equal(found_VD, expected_VD)


def stopped_at_each_line(act, modules, stop):
    """Calls `stop` before every line that `act` executes in the files of these names."""

    def trace(frame, event, _):
        if Path(frame.f_code.co_filename).name not in modules:
            return None
        if event == "line":
            stop(frame)
        return trace

    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(None)


def images_of(folder, to, act):
    """The distinct states of a folder before every line of the modules that `act` goes through."""
    found = {}

    def stop(_):
        state = {
            str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()
        }
        key = hash(tuple(sorted(state.items())))
        if key not in found:
            found[key] = to / str(len(found))
            shutil.copytree(folder, found[key])

    stopped_at_each_line(act, {"table_file.py", Path(__file__).name}, stop)
    return list(found.values())


def recovered(folder):
    """A run that goes on from what is in a folder; where it was read before, it is the same."""
    found = checkpoints(folder)
    steps = int(found[0].name.removeprefix("step-")) if found else 0
    if found:
        assert_same([read_rows(folder / "rows", found[0], name) for name in COLUMNS], after(steps))
    run = Run(folder)
    assert run.step == steps
    assert_same(run.rows(), after(steps))
    return run


@pytest.mark.slow
def test_a_run_that_stops_anywhere_goes_on_from_its_checkpoint(tmp_path):
    folder, images = tmp_path / "run", tmp_path / "images"
    folder.mkdir()
    images.mkdir()
    stopped = images_of(folder, images, lambda: Run(folder).train(4 * EVERY + 1))
    assert len(stopped) > 60
    for image in stopped:
        run = recovered(image)
        run.train(run.step + EVERY + 1)
        assert_same(run.rows(), after(run.step))
        assert_same(recovered(image).rows(), after(run.step // EVERY * EVERY))


@pytest.mark.slow
def test_a_revert_that_stops_anywhere_is_made_again(tmp_path):
    folder, images = tmp_path / "run", tmp_path / "images"
    folder.mkdir()
    images.mkdir()
    Run(folder).train(5 * EVERY + 1)
    for newer in checkpoints(folder)[:2]:  # so that three journals are to be undone
        shutil.rmtree(newer)
    for image in images_of(folder, images, lambda: Run(folder)):
        run = recovered(image)
        for number, columns in enumerate(COLUMNS.values()):
            run.file.write(number, np.arange(ROWS), np.ones((ROWS, columns)))
        run = recovered(image)
        run.train(5 * EVERY)
        assert_same(recovered(image).rows(), after(5 * EVERY))


def test_an_older_checkpoint_is_there_while_it_is_kept(tmp_path):
    run = Run(tmp_path)
    run.train(5 * EVERY + 1)
    oldest = checkpoints(tmp_path)[-1]
    assert list(list_journals(tmp_path / "rows")) == [5, 4, 3]
    for _ in COLUMNS:  # a call for each table of the file
        run.file.restore(oldest)
        assert_same(run.rows(), after(3 * EVERY))
        assert list(list_journals(tmp_path / "rows")) == [3]


def test_a_row_is_journalled_once_between_checkpoints_also_after_a_revert(tmp_path):
    run = Run(tmp_path)
    run.train(EVERY)
    path = journal_path(tmp_path / "rows", 1)

    def journalled():
        return [(r.section, i) for r in records(path, SECTIONS) for i in r.ids_U.tolist()]

    ids = np.array([3, 1])
    for _ in range(2):
        run.file.write(0, ids, np.ones((2, 3)))
    assert journalled() == [(0, 3), (0, 1)]
    run = Run(tmp_path)
    run.file.write(0, np.array([1, 7]), np.ones((2, 3)))
    run.file.write(1, np.array([1]), np.ones((1, 1)))
    assert journalled() == [(0, 3), (0, 1), (0, 7), (1, 1)]


def test_nothing_is_journalled_before_the_first_checkpoint(tmp_path):
    run = Run(tmp_path)
    run.train(EVERY - 1)
    assert [p.stat().st_size for p in list_journals(tmp_path / "rows").values()] == [0]
    run = Run(tmp_path)
    assert_same(run.rows(), after(0))


def test_a_journal_that_cannot_be_written_leaves_the_rows_as_they_are(tmp_path, monkeypatch):
    run = Run(tmp_path)
    run.train(EVERY)
    monkeypatch.setattr(os, "fdatasync", lambda _: os.write(-1, b""))
    with pytest.raises(RunError, match="^cannot write .*rows.undo-1: Bad file"):
        run.train(EVERY + 1)
    assert_same(run.rows(), after(EVERY))
    monkeypatch.undo()
    run.step = EVERY
    run.train(2 * EVERY)
    assert_same(recovered(tmp_path).rows(), after(2 * EVERY))


def test_writers_at_the_same_time_lose_nothing(tmp_path):
    run = Run(tmp_path)
    run.train(EVERY)
    expected = np.repeat(np.arange(4.0), -(-ROWS // 4))[:ROWS]

    def write(number):
        for id in np.flatnonzero(expected == number):
            run.file.write(0, np.array([id]), np.full((1, 3), number))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(run.rows()[0], np.tile(expected[:, np.newaxis], 3))
    assert_same(recovered(tmp_path).rows(), after(EVERY))


def train_for_ever(folder):
    """Trains until it is killed, and says when it has begun."""
    run = Run(Path(folder))
    print("begun", flush=True)
    run.train(sys.maxsize)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [1, pytest.param(8, marks=pytest.mark.slow)])
def test_a_killed_run_goes_on_from_its_checkpoint(tmp_path, kills):
    command = (
        f"from tests.tables.disk import test_table_file as t; t.train_for_ever({str(tmp_path)!r})"
    )
    for kill in range(kills):
        process = subprocess.Popen(
            [sys.executable, "-c", command], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        with process:
            assert process.stdout.readline() == "begun\n"
            first = checkpoints(tmp_path)[:1]
            while checkpoints(tmp_path)[:1] == first:
                time.sleep(0.001)
            time.sleep(0.01 * (kill + 1))
            process.send_signal(signal.SIGKILL)
        recovered(tmp_path)


@pytest.mark.parametrize("repeat", range(20))
def test_of_several_that_start_on_one_new_file_one_has_it(repeat, tmp_path):
    barrier, opened, refused = threading.Barrier(8), [], []

    def start():
        barrier.wait()
        try:
            opened.append(TableFile(tmp_path / "rows", "me", resume=False, take_over=False))
        except UsageError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = opened
    line = f"--table_file={tmp_path}/rows is in use by another run or model; name another file"
    assert refused == [line] * 7
    number = winner.section("words", ROWS, 3, tf.ones, tf.float32)  # its file has its name
    winner.write(number, np.array([1]), np.full((1, 3), 5, np.float32))
    np.testing.assert_array_equal(winner.read(number, np.array([0, 1])), [[1] * 3, [5] * 3])
    assert {path.name for path in tmp_path.iterdir()} == {"rows", "rows.undo-0"}


def test_a_file_is_free_once_its_object_is_gone(tmp_path):
    first = TableFile(tmp_path / "rows", "me", resume=False)
    with pytest.raises(UsageError, match="is in use by another run or model; name another file"):
        TableFile(tmp_path / "rows", "me", resume=True, take_over=False)
    TableFile(tmp_path / "rows", "me", resume=True)  # the same run again
    del first
    TableFile(tmp_path / "rows", "me", resume=False, take_over=False)


def test_a_file_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="rows cannot be written: File exists; name a file"):
        TableFile(tmp_path / "file" / "rows", "me", resume=False)


@pytest.mark.parametrize("what", ["journal", "another file", "snapshot"])
def test_what_cannot_be_undone_is_told(tmp_path, what):
    run = Run(tmp_path)
    run.train(EVERY)
    (found,) = checkpoints(tmp_path)
    if what == "journal":
        journal_path(tmp_path / "rows", 1).unlink()
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
    path.write_bytes((b"lexrow rows 1\n" + header).ljust(65536, b"\0") + path.read_bytes()[65536:])
    with pytest.raises(UsageError, match=f"^--table_file={path} {told}"):
        Run(tmp_path)
    with pytest.raises(RunError, match=f"^{path} {told}"):
        read_rows(path, checkpoints(tmp_path)[0], "words")


@pytest.mark.parametrize("change", [Path.unlink, lambda path: os.truncate(path, 3)])
def test_a_journal_that_is_changed_while_it_is_used_is_told(tmp_path, change):
    run = Run(tmp_path)
    run.train(EVERY + 1)
    change(journal_path(tmp_path / "rows", 1))
    before = run.rows()
    new = np.flatnonzero(~run.file._journalled[0])
    with pytest.raises(RunError, match=r"rows\.undo-1.*(No such file|changed by another program)"):
        run.file.write(0, new, np.ones((len(new), 3), np.float32))
    assert_same(run.rows(), before)


RECORDS = [
    (0, np.array([5, 2]), np.array([b"abcd", b"efgh"], "V4")),
    (3, np.array([2**40]), np.array([b"x" * 12], "V12")),
    (0, np.array([7, 8, 9]), np.array([b"1\0\0\0", b"\0\0\0\0", b"3333"], "V4")),
]
RECORDED = [Section("words", 2**41, columns, "float32", 0) for columns in (1, 1, 1, 3)]


def written(path, wanted=RECORDS):
    opened = Journal(path)
    for record in wanted:
        opened.append(*record)
    return path


def read(path):
    return [(n, ids.tolist(), rows.tobytes()) for n, ids, rows, _ in records(path, RECORDED)]


def as_read(wanted):
    return [(n, ids.tolist(), rows.tobytes()) for n, ids, rows in wanted]


def test_records_come_back_in_order(tmp_path):
    path = written(tmp_path / "undo")
    assert read(path) == as_read(RECORDS)
    assert list(records(path, RECORDED))[-1].end == path.stat().st_size
    assert read(written(tmp_path / "empty", [])) == []


def test_a_torn_last_record_is_left_out_wherever_it_is_torn(tmp_path):
    path = written(tmp_path / "undo")
    content = path.read_bytes()
    ends = [record.end for record in records(path, RECORDED)]
    for size in range(len(content)):
        path.write_bytes(content[:size])
        assert len(read(path)) == sum(end <= size for end in ends)
    # After a lost power supply the file may have its length and not its content.
    path.write_bytes(content[:-1] + b"?")
    assert read(path) == as_read(RECORDS[:2])


def test_a_damaged_record_before_the_last_is_told(tmp_path):
    path = written(tmp_path / "undo")
    content = bytearray(path.read_bytes())
    content[next(records(path, RECORDED)).end - 1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedError, match="undo is damaged: a record that ends [0-9]+ bytes bef"):
        read(path)


def test_what_follows_the_end_is_cut_off(tmp_path):
    path = written(tmp_path / "undo")
    _, second, _ = records(path, RECORDED)
    again = Journal(path, second.end)
    again.append(*RECORDS[0])
    assert read(path) == as_read([*RECORDS[:2], RECORDS[0]])


@pytest.mark.parametrize("fails", ["write", "fdatasync"])
def test_a_full_disk_loses_nothing_and_is_told_in_one_line(tmp_path, monkeypatch, fails):
    path = written(tmp_path / "undo", RECORDS[:1])
    opened = Journal(path, path.stat().st_size)
    real = getattr(os, fails)
    calls = []

    def fail(descriptor, *part):
        calls.append(1)
        if fails == "write" and len(calls) < 3:
            return real(descriptor, *part)
        if fails == "write" and len(calls) == 3:
            return real(descriptor, part[0][:3])  # a disk that fills up takes a part
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, fails, fail)
    remedy = (
        "free the disk and run again, with the same --table_file: it goes on from the newest .*"
    )
    with pytest.raises(RunError, match=f"^cannot write {path}: No space left on device; {remedy}$"):
        opened.append(*RECORDS[1])
    monkeypatch.undo()
    opened.append(*RECORDS[2])
    assert read(path) == as_read([RECORDS[0], RECORDS[2]])


@pytest.mark.parametrize("name", ["rows", "rows[1]*"])
def test_the_journals_of_a_file_newest_first(tmp_path, name):
    path = tmp_path / name
    for end in ("undo-9", "undo-10", "undo-x", "undo-11.old"):
        (tmp_path / f"{name}.{end}").touch()
    (tmp_path / "other.undo-3").touch()
    assert list(list_journals(path)) == [10, 9]
    assert list(list_journals(path, 10)) == [10]
    assert list_journals(path)[9] == journal_path(path, 9) == tmp_path / f"{name}.undo-9"


@pytest.mark.parametrize(
    ("there", "generation", "expected"),
    [
        ([3], 3, [3]),
        ([2, 3, 4], 3, [4, 3]),
        ([2], 3, []),
        ([0], 1, []),
        ([2, 4], 3, None),
        ([3, 5], 3, None),
        ([4], 3, None),
        ([1], 3, None),
        ([], 3, None),
    ],
)
def test_the_journals_to_undo_are_all_there_or_it_is_told(tmp_path, there, generation, expected):
    path = tmp_path / "rows"
    for number in there:
        journal_path(path, number).touch()
    if expected is None:
        with pytest.raises(DamagedError, match=r"rows\.undo-3 or a later one is missing"):
            list_journals_to_undo(path, generation)
    else:
        assert list(list_journals_to_undo(path, generation)) == expected
