from __future__ import annotations

import gzip

import pytest

from app.benchmarks.harness import corpus_lines
from app.errors import UsageError


def test_one_long_line_becomes_short_ones_with_every_word_in_order(tmp_path):
    source, target = tmp_path / "one_line", tmp_path / "lines.txt"
    words = [f"w{n * 7919 % 10**6}" for n in range(300_000)]  # two blocks
    source.write_text(" ".join(words))
    assert corpus_lines.write([str(source)], target) == len(words)
    text = target.read_text()
    assert text.split() == words
    lengths = [len(line.split()) for line in text.splitlines()]
    assert max(lengths) == corpus_lines.LINE_WORDS
    # Only the end of a block and of the text may be short.
    assert sum(length < corpus_lines.LINE_WORDS for length in lengths) <= 3


def test_lines_stay_lines_and_empty_ones_go(tmp_path):
    first, second, target = tmp_path / "a.gz", tmp_path / "b", tmp_path / "lines.txt"
    first.write_bytes(gzip.compress("a\tb\r\n\n  c\u00a0d \n".encode()))
    second.write_bytes(b"e f g h i\xff")
    assert corpus_lines.write([str(first), str(second)], target, longest=2) == 9
    assert target.read_text() == "a b\nc d\ne f\ng h\ni\ufffd\n"


def test_no_line_follows_the_one_with_the_last_wanted_word(tmp_path):
    source, target = tmp_path / "a", tmp_path / "lines.txt"
    source.write_text("a b\nc d\ne f\n")
    for most, text in ((1, "a b\n"), (2, "a b\n"), (3, "a b\nc d\n"), (9, source.read_text())):
        assert corpus_lines.write([str(source)], target, most=most) == len(text.split())
        assert target.read_text() == text


def test_a_truncated_source_leaves_no_file(tmp_path):
    source, target = tmp_path / "a.gz", tmp_path / "lines.txt"
    source.write_bytes(gzip.compress(b"word " * 1000)[:-12])
    with pytest.raises(UsageError, match="a.gz is truncated"):
        corpus_lines.write([str(source)], target)
    assert list(tmp_path.iterdir()) == [source]
