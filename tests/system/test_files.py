import bz2
import errno
import gzip
import lzma
import os

import pytest
import tensorflow as tf

from app.errors import DamagedError, RunError, UsageError
from app.system import files
from app.system.checked_files import COUNT, fits, list_folder, read_json

MARK = "mark"
REMEDIES = {
    errno.ENOSPC: "free the disk",
    errno.EDQUOT: "free the disk",
    errno.EACCES: "let this user write there",
    errno.EROFS: "make it writable",
    errno.EFBIG: "raise the limit of the size of a file (ulimit -f)",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.EIO: "mend that",
}


def write_file(path, text, failure=None):
    with files.replacing(path) as temporary:
        temporary.write_text(text)
        if failure:
            raise failure


def write_folder(path, text, failure=None):
    with files.replacing_folder(path, MARK) as temporary:
        (temporary / MARK).write_text(text)
        if failure:
            raise failure


def read(path):
    return (path / MARK if path.is_dir() else path).read_text()


both = pytest.mark.parametrize("write", [write_file, write_folder])


@both
@pytest.mark.parametrize("kind", [str, lambda path: path])
def test_what_is_complete_takes_its_place(tmp_path, write, kind):
    path = tmp_path / "deep" / "folder" / "out"
    for text in ("first", "second"):
        write(kind(path), text)
        assert read(path) == text
    assert os.listdir(path.parent) == ["out"]


def test_nothing_is_there_before_it_is_complete(tmp_path):
    file, folder = tmp_path / "file", tmp_path / "folder"
    with files.replacing(file) as temporary:
        temporary.write_text("text")
        assert not file.exists()
    with files.replacing_folder(folder, MARK) as temporary:
        assert temporary.is_dir()
        assert not folder.exists()
    assert (file.exists(), folder.exists()) == (True, True)


@both
@pytest.mark.parametrize("failure", [KeyError("a mistake"), KeyboardInterrupt()])
def test_a_failure_keeps_what_was_there_and_leaves_nothing(tmp_path, write, failure):
    path = tmp_path / "out"
    for _ in range(2):
        with pytest.raises(type(failure)):
            write(path, "half", failure)
        assert os.listdir(tmp_path) == []
    write(path, "old")
    with pytest.raises(type(failure)):
        write(path, "half", failure)
    assert read(path) == "old"
    assert os.listdir(tmp_path) == ["out"]


@both
@pytest.mark.parametrize("number", REMEDIES)
def test_a_full_disk_or_lost_permission_is_told_in_one_line(tmp_path, write, number):
    path = tmp_path / "out"
    write(path, "old")
    with pytest.raises(RunError) as raised:
        write(path, "new", OSError(number, os.strerror(number)))
    remedy = f"{REMEDIES[number]} or choose another folder"
    assert str(raised.value) == f"cannot write {path}: {os.strerror(number)}; {remedy}"
    assert read(path) == "old"
    assert os.listdir(tmp_path) == ["out"]


def test_the_error_of_the_system_in_a_message_of_tensorflow():
    with pytest.raises(tf.errors.OpError) as raised:
        tf.train.Checkpoint(a=tf.Variable(1.0)).write("/proc/none/tables")
    for message in (raised.value.message, "{{node a}} No such file or directory\nmore"):
        found = files.system_error(message)
        assert (found.errno, found.strerror) == (errno.ENOENT, os.strerror(errno.ENOENT))


def test_a_message_of_tensorflow_without_an_error_of_the_system():
    found = files.system_error("{{node a}} /path/x; Some reason [Op:SaveV2]\nmore")
    assert (found.errno, found.strerror) == (None, "Some reason")
    assert files.system_error("").strerror == ""


@both
def test_a_rename_that_fails_brings_the_former_one_back(tmp_path, write, monkeypatch):
    path = tmp_path / "out"
    write(path, "old")
    rename = os.replace

    def fail_for_the_new(source, target):
        if ".new-" in str(source):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rename(source, target)

    monkeypatch.setattr(os, "replace", fail_for_the_new)
    with pytest.raises(RunError, match="out: Input/output error; mend that"):
        write(path, "new")
    assert read(path) == "old"
    assert os.listdir(tmp_path) == ["out"]


@both
def test_a_place_below_a_file_cannot_be_written(tmp_path, write):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / "out", tmp_path / "file" / "folder" / "out"):
        reason = f"{tmp_path}/file is a file, not a folder; choose another folder"
        with pytest.raises(UsageError, match=f"^cannot write {place}: {reason}$"):
            write(place, "text")


@both
def test_a_link_stays_a_link(tmp_path, write):
    path, link = tmp_path / "real" / "out", tmp_path / "link"
    write(path, "old")
    link.symlink_to(path)
    write(link, "new")
    assert link.is_symlink()
    assert read(path) == "new"
    assert sorted(os.listdir(tmp_path)) == ["link", "real"]


def test_a_file_replaces_no_folder_or_device(tmp_path):
    for path in (tmp_path, "/dev/null", "/"):
        with pytest.raises(UsageError, match=f"^{path} is a folder or a device; give"):
            write_file(path, "text")
    assert os.listdir(tmp_path) == []


def test_a_folder_replaces_only_its_like(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="file is a file; give a new or empty folder"):
        write_folder(tmp_path / "file", "text")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "text").write_text("mine")
    with pytest.raises(UsageError, match="other holds other files \\(no mark\\); give a new or"):
        write_folder(tmp_path / "other", "text")
    assert (tmp_path / "file").read_text() == (tmp_path / "other" / "text").read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["file", "other"]
    (tmp_path / "empty").mkdir()
    write_folder(tmp_path / "empty", "text")
    assert read(tmp_path / "empty") == "text"


def test_what_killed_writers_left_is_swept(tmp_path):
    kept = ["out", "out.new-1", ".other.new-1", ".out", ".out.old-1"]
    for name in (*kept, ".out.new-1"):
        (tmp_path / name).write_text("text")
    (tmp_path / ".out.new-2").mkdir()
    (tmp_path / ".out.new-2" / MARK).write_text("half")
    files.sweep(tmp_path / "out")
    assert sorted(os.listdir(tmp_path)) == sorted(kept)
    files.sweep(tmp_path / "*")
    assert sorted(os.listdir(tmp_path)) == sorted(set(kept) - {".other.new-1"})
    files.sweep(tmp_path / "none" / "out")


@pytest.mark.parametrize(
    ("name", "opens"),
    [
        ("a.gz", gzip.open),
        ("a.txt.GZ", gzip.open),
        ("a.bz2", bz2.open),
        ("a.xz", lzma.open),
        ("gz", open),
        ("a.gz.txt", open),
    ],
)
def test_the_suffix_tells_how_a_file_is_opened(tmp_path, name, opens):
    assert files.opener(tmp_path / name) is files.opener(name) is opens


@both
def test_the_disk_has_what_is_new_before_the_old_one_goes(tmp_path, monkeypatch, write):
    path = tmp_path / "out"
    write(path, "old")
    done, replace = [], os.replace

    def fsync(number):
        done.append(os.readlink(f"/proc/self/fd/{number}").rpartition("/")[2])

    def rename(source, target):
        done.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", rename)
    write(path, "new")
    first, last = done.index("rename"), len(done) - 1
    assert first and all(name == MARK or ".new-" in name for name in done[:first])
    assert done[last] == tmp_path.name and done[last - 1] == "rename"


def test_a_folder_is_removed_at_once(tmp_path, monkeypatch):
    folder = tmp_path / "out"
    write_folder(folder, "text")
    monkeypatch.setattr(files, "_remove", lambda path: None)  # a kill comes before
    files.remove_folder(folder)
    assert not folder.exists() and len(os.listdir(tmp_path)) == 1
    monkeypatch.undo()
    files.sweep(folder)
    assert os.listdir(tmp_path) == []
    files.remove_folder(folder)


def test_a_pipe_and_a_device_are_no_regular_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/null"):
        with pytest.raises(OSError, match="not a regular file"):
            files.open_regular(path)


def test_what_cannot_be_read_is_told(tmp_path):
    (tmp_path / "file").write_text("text")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "list").write_text("[1]")
    for name, error, told in (
        ("file/below", DamagedError, "below is missing"),
        ("loop", RunError, "^cannot read .*loop: Too many levels of symbolic links; mend that"),
    ):
        with pytest.raises(error, match=told) as raised:
            read_json(tmp_path / name, dict)
        assert type(raised.value) is error
    with pytest.raises(RunError, match="file is no folder; rename it"):
        list_folder(tmp_path / "file")
    assert list_folder(tmp_path / "none") == list_folder(tmp_path / "file/a") == []
    assert list_folder(tmp_path, "l") == [tmp_path / "list", tmp_path / "loop"]


@pytest.mark.parametrize(
    ("value", "shape", "expected"),
    [
        (3, int, True),
        (True, int, False),
        (3, COUNT, True),
        (-1, COUNT, False),
        (2**63, COUNT, False),
        (3, float, True),
        (10**400, float, False),
        ("a", frozenset(["a", "b"]), True),
        (["a"], frozenset(["a", "b"]), False),
        (None, None, True),
        (None, (int, None), True),
        ([1, 2], [int], True),
        ([1, "2"], [int], False),
        ([], [int, int], False),
        ([1, 2], [int, int], True),
        ({"a": 1, "more": 2}, {"a": int}, True),
        ({}, {"a": int}, False),
        ({}, {"a": (int, None)}, True),
        ({"x": 1, "y": 2}, {str: int}, True),
        ({"x": 1, "y": "2"}, {str: int}, False),
        ([], dict, False),
    ],
)
def test_a_value_fits_a_shape(value, shape, expected):
    assert fits(value, shape) is expected


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "Expecting value: "),
        (b"\xff", "'utf-8' codec can't decode byte 0xff"),
        (b"[" * 100_000, "maximum recursion depth exceeded"),
        (b'{"a": ' * 100_000, "maximum recursion depth exceeded"),
        (b"9" * 5000, "Exceeds the limit"),
        (b"[3]", "it holds '[3]'"),
        (b"{}", "its 'words' is 'None'"),
        (b'{"words": "3\\n4"}', "its 'words' is '3\\n4'"),
    ],
)
def test_damaged_json_is_one_line(tmp_path, content, reason):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(DamagedError) as raised:
        read_json(path, {"words": int})
    told = str(raised.value)
    assert told.startswith(f"{path} is damaged: {reason}") and "\n" not in told
    assert told.endswith("; put back a copy of it, or train in a new workdir")


def test_json_that_is_missing_or_cannot_be_read(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    assert read_json(path, dict, optional=True) is None
    with pytest.raises(DamagedError, match="a.json is missing; put back a copy of it"):
        read_json(path, dict)
    path.mkdir()
    with pytest.raises(RunError, match="^cannot read .*a.json: Is a directory; ") as raised:
        read_json(path, dict, optional=True)
    assert not isinstance(raised.value, DamagedError)
    path.rmdir()
    path.write_text("{}")
    monkeypatch.setattr("app.system.checked_files._JSON_BYTES", 1)
    with pytest.raises(DamagedError, match="it is longer than 1 bytes"):
        read_json(path, dict)
