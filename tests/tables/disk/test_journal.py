from __future__ import annotations

import errno
import os

import numpy as np
import pytest

from app.errors import DamagedError, RunError
from app.tables.disk.sections import Section
from app.tables.disk.table_file import (
    Journal,
    journal_path,
    list_journals,
    list_journals_to_undo,
    records,
)

RECORDS = [
    (0, np.array([5, 2]), np.array([b"abcd", b"efgh"], "V4")),
    (3, np.array([2**40]), np.array([b"x" * 12], "V12")),
    (0, np.array([7, 8, 9]), np.array([b"1\0\0\0", b"\0\0\0\0", b"3333"], "V4")),
]
SECTIONS = [Section("words", 2**41, columns, "float32", 0) for columns in (1, 1, 1, 3)]


def written(path, wanted=RECORDS):
    opened = Journal(path)
    for record in wanted:
        opened.append(*record)
    return path


def read(path):
    return [(n, ids.tolist(), rows.tobytes()) for n, ids, rows, _ in records(path, SECTIONS)]


def as_read(wanted):
    return [(n, ids.tolist(), rows.tobytes()) for n, ids, rows in wanted]


def test_records_come_back_in_order(tmp_path):
    path = written(tmp_path / "undo")
    assert read(path) == as_read(RECORDS)
    assert list(records(path, SECTIONS))[-1].end == path.stat().st_size
    assert read(written(tmp_path / "empty", [])) == []


def test_a_torn_last_record_is_left_out_wherever_it_is_torn(tmp_path):
    path = written(tmp_path / "undo")
    content = path.read_bytes()
    ends = [record.end for record in records(path, SECTIONS)]
    for size in range(len(content)):
        path.write_bytes(content[:size])
        assert len(read(path)) == sum(end <= size for end in ends)
    # After a lost power supply the file may have its length and not its content.
    path.write_bytes(content[:-1] + b"?")
    assert read(path) == as_read(RECORDS[:2])


def test_a_damaged_record_before_the_last_is_told(tmp_path):
    path = written(tmp_path / "undo")
    content = bytearray(path.read_bytes())
    content[next(records(path, SECTIONS)).end - 1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedError, match="undo is damaged: a record that ends [0-9]+ bytes bef"):
        read(path)


def test_what_follows_the_end_is_cut_off(tmp_path):
    path = written(tmp_path / "undo")
    _, second, _ = records(path, SECTIONS)
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
