import dataclasses
import io
import os

import numpy as np
import pytest
import tensorflow as tf

from app.errors import DamagedError, NoEffectError, RunError, UsageError
from app.input import counting
from app.input.blocks import TextFiles
from app.settings import CorpusConfig, InputConfig
from app.system.files import LONGEST_LINE
from app.text import vocabulary
from app.text.vocabulary import Vocabulary
from app.types import Team
from tests.teams import together

SAMPLE = Vocabulary(["the", "\u00e9t\u00e9", "a\u2028b"], np.array([9, 4, 4], np.int64), 20)


def test_round_trip(tmp_path):
    path = str(tmp_path / "vocab.tsv")
    vocabulary.save(SAMPLE, path)
    found = vocabulary.load(path)
    assert found.tokens == SAMPLE.tokens
    assert found.counts.dtype == np.int64
    assert found.counts.tolist() == [9, 4, 4]
    assert found.total == 17
    assert os.listdir(tmp_path) == ["vocab.tsv"]


def test_reads_crlf_and_a_last_line_without_end(tmp_path):
    path = tmp_path / "vocab.tsv"
    path.write_bytes(b"the\t3\r\nof\t2")
    assert vocabulary.load(str(path)).tokens == ["the", "of"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty; give a file of token<TAB>count"),
        (b"a\t3\nb\t2\na\t1\n", "line 3: token 'a' is on line 1 already; remove"),
        (b"a\t3\nb\n", "line 2: 'b' is not token<TAB>count"),
        (b"a\t3\n\nb\t1\n", "line 2: '' is not"),
        (b"a b\t3\n", "line 1: .* is not"),
        (b"a\tthree\n", "line 1: .* is not"),
        (b"a\t0\n", "line 1: .* is not"),
        (b"a\t99999999999999999999\n", "line 1: .* is not"),
        (b"\t3\n", "line 1: .* is not"),
        (b"a\t3\nb\t4\n", "line 2: count 4 is above the 3 before it; sort"),
        (b"a\t3\n\xff\t2\n", "line 2: not UTF-8; convert"),
    ],
)
def test_bad_files_are_refused(tmp_path, data, message):
    path = tmp_path / "vocab.tsv"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=f"{path}.*{message}") as raised:
        vocabulary.load(str(path))
    assert "\n" not in str(raised.value)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(UsageError, match="cannot read .*gone.tsv: No such file"):
        vocabulary.load(str(tmp_path / "gone.tsv"))


@pytest.mark.parametrize("token", ["", "a b", "a\tb", "a\n"])
def test_tokens_with_white_space_are_not_saved(tmp_path, token):
    with pytest.raises(ValueError, match="white space"):
        vocabulary.save(Vocabulary([token], np.array([1]), 1), str(tmp_path / "vocab.tsv"))
    assert os.listdir(tmp_path) == []


def test_saving_where_one_cannot(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write .*vocab.tsv: .*/file is a file"):
        vocabulary.save(SAMPLE, str(tmp_path / "file" / "vocab.tsv"))


def test_lookup_table():
    ids = vocabulary.lookup_table(SAMPLE).lookup(tf.constant([["a\u2028b", "the"], ["The", ""]]))
    assert ids.dtype == tf.int32
    assert ids.numpy().tolist() == [[2, 0], [vocabulary.UNKNOWN] * 2]


def test_a_byte_order_mark_is_no_part_of_the_first_token(tmp_path):
    path = tmp_path / "vocab.tsv"
    path.write_bytes(b"\xef\xbb\xbfthe\t3\nof\t2\n")
    assert vocabulary.load(str(path)).tokens == ["the", "of"]


def test_a_first_token_that_begins_with_a_byte_order_mark_comes_back(tmp_path):
    path = str(tmp_path / "vocab.tsv")
    vocabulary.save(Vocabulary(["\ufeffthe", "of"], np.array([3, 2], np.int64), 5), path)
    assert vocabulary.load(path).tokens == ["\ufeffthe", "of"]


def test_a_vocabulary_grows_by_counts_and_new_tokens():
    old = Vocabulary(["the", "rare", "b", "a"], np.array([9, 4, 2, 2], np.int64), 30)
    counts = {"b": 8, "new": 3, "once": 1, "few": 2, "the": 1, "a": 0}
    grown, new_ids_V = vocabulary.grow(old, counts, 15, min_count=2)
    assert grown.tokens == ["b", "the", "rare", "new", "a", "few"]
    assert grown.counts.tolist() == [10, 10, 4, 3, 2, 2]
    assert grown.total == 45
    assert [grown.tokens[number] for number in new_ids_V] == old.tokens
    for most, expected in ((5, ["new"]), (4, []), (2, [])):
        found = vocabulary.grow(old, counts, 15, min_count=2, most=most)[0]
        assert sorted(set(found.tokens) - set(old.tokens)) == expected
        assert set(old.tokens) <= set(found.tokens)
    same, new_ids_V = vocabulary.grow(old, {}, 0)
    assert sorted(same.tokens) == sorted(old.tokens) and len(new_ids_V) == 4


def test_names_are_counted():
    known, ids = ["d", "b", "a", "c"], np.array([0, 0, 3, 3, 2, 1, 1])
    found = vocabulary.count_names(known, ids)
    assert found.tokens == ["b", "c", "d", "a"]
    assert found.counts.tolist() == [2, 2, 2, 1] and found.total == 7
    assert vocabulary.count_names(known, ids, min_count=2, most=2).tokens == ["b", "c"]


def test_labels_are_kept(tmp_path):
    labels = Vocabulary(["Sci Fi", "é"], np.array([5, 2]), 7)
    vocabulary.save_names(labels, tmp_path / "labels.tsv")
    found = vocabulary.load_names(tmp_path / "labels.tsv")
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
    vocabulary.save_names(Vocabulary(odd, np.arange(1, len(odd) + 1), 0), tmp_path / "users.tsv")
    found = vocabulary.load_names(tmp_path / "users.tsv")
    assert found.tokens == odd and found.counts.tolist() == [*range(1, len(odd) + 1)]


def test_a_name_of_two_lines_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"^'a\\nb' has a line break, which users.tsv cannot"):
        vocabulary.save_names(Vocabulary(["a\nb"], np.array([1]), 1), tmp_path / "users.tsv")
    assert not list(tmp_path.iterdir())


def test_a_name_that_is_too_long_is_refused(tmp_path):
    path = tmp_path / "users.tsv"
    for size in (LONGEST_LINE, LONGEST_LINE - 31):
        long = Vocabulary(["a" * size], np.array([1]), 1)
        with pytest.raises(UsageError, match="^the name that begins with 'a{40}' has more than 1,"):
            vocabulary.save_names(long, path)
    assert not list(tmp_path.iterdir())
    longest = Vocabulary(["a" * (LONGEST_LINE - 32)], np.array([2**63 - 1]), 1)
    vocabulary.save_names(longest, path)
    assert vocabulary.load_names(path).tokens == longest.tokens


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
            vocabulary.load_names(path)
        assert str(raised.value).startswith(f"{path} is damaged: {reason}; put back a copy")
    path.unlink()
    with pytest.raises(DamagedError, match="users.tsv is missing; put back a copy of it, or train"):
        vocabulary.load_names(path)


def test_all_get_the_part_of_each():
    made = together(3, lambda team: team.gather_parts(lambda: b"%d" % team.number))
    assert made == [[b"0", b"1", b"2"]] * 3


@pytest.mark.parametrize(
    ("error", "kind"), [(RunError, RunError), (UsageError, UsageError), (NoEffectError, UsageError)]
)
def test_all_fail_by_the_error_of_one(error, kind):
    told = []

    def make(team):
        arguments = ("a", "reason") if error is NoEffectError else ("reason",)
        if team.number:
            raise error(*arguments)
        return b""

    def call(team):
        with pytest.raises(kind, match="^reason$"):
            team.gather_parts(lambda: make(team))
        told.append(team.number)

    together(2, call)
    assert sorted(told) == [0, 1]


@pytest.mark.slow
def test_text_that_only_one_reads_fails_all(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"some words\n" * 10 + b"\xff\n")
    given = CorpusConfig(corpus=str(path), invalid_utf8="error")

    def count(team):
        files = TextFiles((str(path),), given, InputConfig(block_bytes=64))
        with pytest.raises(RunError, match="a.txt: byte 0xff at offset 110 is not UTF-8"):
            counting.count_tokens(files, 99, team=team)

    together(2, count)


def test_arrays_of_others_cannot_run_anything():
    file = io.BytesIO()
    np.savez(file, tokens=np.array([print], object))
    team = Team(0, lambda own: [own, b"p" + file.getvalue()], ("0", "1"))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        team.gather_arrays(lambda: {"tokens": np.arange(3)})


def test_tokens_are_joined_and_split():
    for tokens in ([], [b"a"], [b"a", "\u00e9".encode(), b"\r"]):
        counts, merged = counting.TokenCounts(9), counting.TokenCounts(9)
        counts.add(np.array(tokens, object), np.ones(len(tokens), np.int64))
        merged.merge(counts.arrays())
        assert merged.tally() == dict.fromkeys(tokens, 1)
