from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from app.errors import DamagedError, UsageError
from app.system.files import LONGEST_LINE
from app.text import names
from app.text.vocabulary import Vocabulary


def test_names_are_counted():
    known, ids = ["d", "b", "a", "c"], np.array([0, 0, 3, 3, 2, 1, 1])
    found = names.count_names(known, ids)
    assert found.tokens == ["b", "c", "d", "a"]
    assert found.counts.tolist() == [2, 2, 2, 1] and found.total == 7
    assert names.count_names(known, ids, min_count=2, most=2).tokens == ["b", "c"]


def test_labels_are_kept(tmp_path):
    labels = Vocabulary(["Sci Fi", "é"], np.array([5, 2]), 7)
    names.save(labels, tmp_path / "labels.tsv")
    found = names.load(tmp_path / "labels.tsv")
    assert dataclasses.astuple(found)[0] == labels.tokens
    assert found.counts.tolist() == [5, 2] and found.total == 7


def test_every_name_of_one_line_is_kept(tmp_path):
    odd = [
        "a\r",
        "\r",
        "a\rb",
        "\t",
        "a\tb",
        "\v\f",
        "\x1c\x85",
        "\u2028",
        " ",
        "\0",
        '"',
        "\ufeff",
    ]
    names.save(Vocabulary(odd, np.arange(1, len(odd) + 1), 0), tmp_path / "users.tsv")
    found = names.load(tmp_path / "users.tsv")
    assert found.tokens == odd and found.counts.tolist() == [*range(1, len(odd) + 1)]


def test_a_name_of_two_lines_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"^'a\\nb' has a line break, which users.tsv cannot"):
        names.save(Vocabulary(["a\nb"], np.array([1]), 1), tmp_path / "users.tsv")
    assert not list(tmp_path.iterdir())


def test_a_name_that_is_too_long_is_refused(tmp_path):
    for size in (LONGEST_LINE, LONGEST_LINE - 31):
        with pytest.raises(UsageError, match="^the name that begins with 'a{40}' has more than 1,"):
            names.save(Vocabulary(["a" * size], np.array([1]), 1), tmp_path / "users.tsv")
    assert not list(tmp_path.iterdir())
    longest = Vocabulary(["a" * (LONGEST_LINE - 32)], np.array([2**63 - 1]), 1)
    names.save(longest, tmp_path / "users.tsv")
    assert names.load(tmp_path / "users.tsv").tokens == longest.tokens


def test_a_damaged_file_is_named(tmp_path):
    path = tmp_path / "users.tsv"
    for data, reason in (
        (b"", "it is empty"),
        (b"a\t3\nb\t2", "its last line is cut short"),
        (b"a\t3\n" + bytes(LONGEST_LINE + 1), "line 2 is longer than 1,048,576 bytes"),
        (b"a 3\n", "line 1 is not a name, tab and count"),
        (b"a\t3\nb\t-2\n", "line 2 is not a name, tab and count"),
        (b"a\t3\n\xff\t2\n", "line 2 is not UTF-8"),
        (b"a\t9223372036854775807\nb\t1\n", "its counts add up to 9223372036854775808"),
    ):
        path.write_bytes(data)
        with pytest.raises(DamagedError) as raised:
            names.load(path)
        assert str(raised.value).startswith(f"{path} is damaged: {reason}; put back a copy")
    path.unlink()
    with pytest.raises(DamagedError, match="users.tsv is missing; put back a copy of it, or train"):
        names.load(path)
