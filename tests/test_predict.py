"""How app.predict reads: line by line as they come, whatever the bytes."""

from __future__ import annotations

import io
import os

from app import predict


def test_lines_are_answered_as_they_come():
    reader, writer = os.pipe()
    with open(reader, "rb") as file, open(writer, "wb", buffering=0) as given:
        found = predict._lines(file)
        given.write(b"one\ntwo\nthr")
        assert next(found) == [b"one", b"two"]
        given.write(b"ee\n\n")
        assert next(found) == [b"three", b""]
        given.write(b"end")
        given.close()
        assert [*found] == [[b"end"]]


def test_bytes_that_are_no_text():
    (lines,) = predict._lines(io.BytesIO(b"caf\xe9 \xc3\xa9\r\n\n"))
    assert lines == ["caf\ufffd é\r".encode(), b""]
    assert [*predict._lines(io.BytesIO(b""))] == []


def test_an_answer():
    found = [("good", 0.987654321), ("Sci Fi", 0.01)]
    assert predict._as_text(found) == "good 0.987654 Sci Fi 0.01"
    assert predict._as_json(found) == '{"good": 0.987654321, "Sci Fi": 0.01}'
    assert predict._as_text([]) == ""
