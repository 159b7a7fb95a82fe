"""How lexrow predict reads: line by line as they come, whatever the bytes."""

import gzip
import io
import os
import types

import pytest

from app import predict
from app.cli import startup
from app.errors import UsageError


def test_lines_are_answered_as_they_come():
    reader, writer = os.pipe()
    with open(reader, "rb") as file, open(writer, "wb", buffering=0) as given:
        found = predict._lines(file)
        given.write(b"one\ntwo\nthr")
        assert next(found) == ([b"one", b"two"], 0)
        given.write(b"ee\n\n")
        assert next(found) == ([b"three", b""], 0)
        given.write(b"end")
        given.close()
        assert [*found] == [([b"end"], 0)]


def test_what_is_missing_is_named_with_how_to_make_it():
    with pytest.raises(UsageError, match="`lexrow train --task=classify` trains.*--model=FILE"):
        predict._load_predictor("", "")
    with pytest.raises(UsageError, match=r"--model=\. is a folder; give it as --workdir=\."):
        predict._load_predictor("", ".")
    with pytest.raises(UsageError, match="is empty; .*, or train one with `lexrow train --task=r"):
        startup.check_task("", {}, "recommend")


def test_bytes_that_are_no_text():
    ((lines, _),) = predict._lines(io.BytesIO(b"caf\xe9 \xc3\xa9\r\n\n"))
    assert lines == ["caf\ufffd é\r".encode(), b""]
    assert [*predict._lines(io.BytesIO(b""))] == []


def test_compressed_texts_are_refused():
    with pytest.raises(UsageError, match="^standard input is compressed; decompress it, as zcat"):
        next(predict._lines(io.BytesIO(gzip.compress(b"one\n"))))


def test_a_byte_order_mark_is_skipped():
    mark = b"\xef\xbb\xbf"
    for text in (b"one", b"one\n"):
        assert [*predict._lines(io.BytesIO(mark + text))] == [([b"one"], 0)]


def test_a_line_that_is_too_long_is_cut_and_counted(monkeypatch):
    monkeypatch.setattr(predict, "_BLOCK_BYTES", 3)
    found = [*predict._lines(io.BytesIO(b"12345678\n123456789\n\n" + b"x" * 50), longest=8)]
    assert [line for lines, _ in found for line in lines] == [
        b"12345678",
        b"12345678",
        b"",
        b"x" * 8,
    ]
    assert sum(cut for _, cut in found) == 2


def test_an_answer(monkeypatch):
    found = [("good", 0.987654321), ("Sci Fi", 0.01)]
    for as_json, labels, expected in (
        (False, found, "good\t0.987654\tSci Fi\t0.01"),
        (True, found, '{"good": 0.987654321, "Sci Fi": 0.01}'),
        (False, [], ""),
    ):
        monkeypatch.setattr(predict.absl_flags, "FLAGS", types.SimpleNamespace(json=as_json))
        assert predict._format(labels) == expected
