import pytest

from app.errors import DamagedError, RunError
from app.system.checked_files import COUNT, fits, list_folder, read_json


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
