import base64
import bz2
import gzip
import hashlib
import lzma
import os
import random

import pytest

from app.errors import RunError, UsageError
from app.text import reading

COMPRESSORS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
ALPHABET = "ab\u00e9\u20ac\U0001f600 \t\n"


def written(tmp_path, data: bytes, name="text.txt") -> str:
    path = tmp_path / name
    path.write_bytes(data)
    return str(path)


def documents_of(blocks) -> list[list[str]]:
    """The tokens of each line of each block, without empty ones: a consumer joins no blocks."""
    lines = [line for block in blocks for line in block.decode().split("\n")]
    return [line.split() for line in lines if line.split()]


def random_text(draw: random.Random) -> str:
    words = ["".join(draw.choices(ALPHABET, k=draw.randint(1, 20))) for _ in range(100)]
    return draw.choice(["", "\n"]) + draw.choice([" ", "\n", " \r\n", " \n "]).join(words)


@pytest.mark.parametrize("documents", ["line", "file", "none"])
def test_blocks_are_the_text_cut_at_white_space(tmp_path, documents):
    draw = random.Random(1)
    for trial in range(150):
        text = random_text(draw).encode()
        path = written(tmp_path, text, f"{trial}.txt")
        longest = max(map(len, text.split()))
        for size in (longest + 1, draw.randint(90, 200), len(text), len(text) + 1):
            blocks = list(reading.blocks(path, documents, block_bytes=max(size, longest + 1)))
            assert b"".join(blocks) == text
            assert max(map(len, blocks)) <= max(size, longest + 1)
            assert all(block[-1:].isspace() for block in blocks[:-1])
            assert [word for block in blocks for word in block.split()] == text.split()


def test_a_line_shorter_than_a_block_stays_whole(tmp_path):
    draw = random.Random(2)
    for trial in range(150):
        start = draw.choice(["", "\ufeff"])
        text = random_text(draw)
        path = written(tmp_path, (start + text).encode(), f"{trial}.txt")
        size = max(len(line.encode()) for line in text.split("\n")) + 1
        blocks = list(reading.blocks(path, "line", block_bytes=size + draw.randint(0, 20)))
        assert documents_of(blocks) == documents_of([text.encode()])
        assert all(block.endswith(b"\n") for block in blocks[:-1])


def test_files_are_cut_at_the_last_white_space_in_reach(tmp_path):
    path = written(tmp_path, b"one\ntwo three\tfour five")
    assert list(reading.blocks(path, "line", block_bytes=16)) == [
        b"one\n",
        b"two three\tfour ",
        b"five",
    ]
    for documents in ("file", "none"):
        blocks = list(reading.blocks(path, documents, block_bytes=16))
        assert blocks == [b"one\ntwo three\t", b"four five"]


def test_a_token_longer_than_a_block_is_cut_between_characters(tmp_path):
    text = "\u20ac\U0001f600\u00e9x" * 500
    path = written(tmp_path, text.encode())
    for size in range(8, 40):
        blocks = list(reading.blocks(path, "line", "error", block_bytes=size))
        assert "".join(block.decode() for block in blocks) == text
        assert max(map(len, blocks)) <= size


def test_a_line_longer_than_a_block_is_cut_into_documents_of_a_block(tmp_path):
    path = written(tmp_path, b"first\n" + b"word " * 100 + b"\nlast\n")
    found = documents_of(reading.blocks(path, "line", block_bytes=64))
    assert found[0] == ["first"]
    assert [len(words) for words in found[1:-1]] == [12] * 8 + [4]
    assert {word for words in found[1:-1] for word in words} == {"word"}
    assert found[-1] == ["last"]


@pytest.mark.parametrize("suffix", COMPRESSORS)
@pytest.mark.parametrize("damage", ["truncated", "corrupt"])
def test_damaged_compressed_files_are_named(tmp_path, suffix, damage):
    data = COMPRESSORS[suffix](base64.encodebytes(random.Random(2).randbytes(100_000)))
    damaged = {
        "truncated": data[: len(data) // 2],
        "corrupt": data[:5000] + bytes(500) + data[5500:],
    }[damage]
    path = written(tmp_path, damaged, f"text{suffix}")
    with pytest.raises(UsageError, match="truncated or corrupt .*again") as raised:
        list(reading.blocks(path))
    assert path in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(RunError, match="cannot read .*gone.txt: No such file"):
        list(reading.blocks(str(tmp_path / "gone.txt")))


def test_invalid_utf8_is_replaced_and_counted(tmp_path):
    # A stray byte, a cut sequence, an encoded surrogate (three sequences), and a valid U+FFFD.
    data = b"a\xffb \xe2\x82 c\n\xed\xa0\x80 \xef\xbf\xbd\n"
    path = written(tmp_path, data)
    progress = reading.Progress.make((path,))
    for size in (16, 1 << 20):
        blocks = list(reading.blocks(path, block_bytes=size, progress=progress))
        assert b"".join(blocks) == data.decode(errors="replace").encode()
        assert progress.replaced == [5]


def test_stray_continuation_bytes_count_the_same_in_any_block(tmp_path):
    path = written(tmp_path, b"\x80" * 100)
    for size in (8, 9, 1 << 20):
        progress = reading.Progress.make((path,))
        found = b"".join(reading.blocks(path, block_bytes=size, progress=progress))
        assert found.decode() == "\ufffd" * 100
        assert progress.replaced == [100]


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_invalid_utf8_is_refused_with_its_offset(tmp_path, start):
    data = start + b"word " * 20 + b"\xff"
    path = written(tmp_path, data)
    message = f"byte 0xff at offset {len(data) - 1} is not UTF-8; .*--invalid_utf8=replace"
    with pytest.raises(RunError, match=message) as raised:
        list(reading.blocks(path, "line", "error", block_bytes=32))
    assert path in str(raised.value)


def test_byte_order_mark_crlf_and_nul(tmp_path):
    path = written(tmp_path, b"\xef\xbb\xbfone\r\ntwo\0x\r\n")
    assert list(reading.blocks(path)) == [b"one\r\ntwo\0x\r\n"]


def test_empty_and_blank_files(tmp_path):
    assert list(reading.blocks(written(tmp_path, b""))) == []
    assert list(reading.blocks(written(tmp_path, b"\xef\xbb\xbf"))) == []
    for documents in ("line", "file", "none"):
        blank = written(tmp_path, b"\n \n\n")
        assert list(reading.blocks(blank, documents)) == [b"\n \n\n"]
        assert b"".join(reading.blocks(blank, documents, block_bytes=3)) == b"\n \n\n"


def test_a_pipe_in_place_of_a_file_is_refused_without_waiting(tmp_path):
    path = tmp_path / "text.txt"
    os.mkfifo(path)
    with pytest.raises(
        RunError, match="cannot read .*text.txt: it is a pipe, a folder or a device"
    ):
        next(reading.blocks(str(path)))


@pytest.mark.parametrize("documents", ["line", "file"])
def test_the_digest_is_that_of_the_text_however_it_is_cut(tmp_path, documents):
    text = b"one two three\n" * 100
    for name, data in (
        ("a.txt", text),
        ("b.txt", b"\xef\xbb\xbf" + text),
        ("c.gz", gzip.compress(text)),
    ):
        path = written(tmp_path, data, name)
        for size in (32, 1000, 1 << 20):
            progress = reading.Progress.make((path,), hashed=True)
            list(reading.blocks(path, documents, block_bytes=size, progress=progress))
            assert progress.digests == [hashlib.sha256(text).hexdigest()]


def test_a_file_that_is_not_read_to_its_end_has_no_digest(tmp_path):
    path = written(tmp_path, b"one two three\n" * 100)
    progress = reading.Progress.make((path,), hashed=True)
    next(reading.blocks(path, block_bytes=32, progress=progress))
    assert progress.digests == [""]
