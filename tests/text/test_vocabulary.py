from __future__ import annotations

import os

import numpy as np
import pytest
import tensorflow as tf

from app.errors import UsageError
from app.text import vocabulary
from app.text.vocabulary import Vocabulary

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
        (b"a 3\n", "line 1: 'a 3' is not"),
        (b"a b\t3\n", "line 1: .* is not"),
        (b"a\tthree\n", "line 1: .* is not"),
        (b"a\t-3\n", "line 1: .* is not"),
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
    table = vocabulary.lookup_table(SAMPLE)
    ids = table.lookup(tf.constant([["a\u2028b", "the"], ["The", ""]]))
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
        found = vocabulary.grow(old, counts, 15, min_count=2, most=most).vocabulary
        assert sorted(set(found.tokens) - set(old.tokens)) == expected
        assert set(old.tokens) <= set(found.tokens)
    same, new_ids_V = vocabulary.grow(old, {}, 0)
    assert sorted(same.tokens) == sorted(old.tokens) and len(new_ids_V) == 4
