"""Files are read by what they contain, whatever their name, or refused by one line; in blocks."""

import base64
import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import random
import tarfile
import zipfile

import numpy as np
import pytest

from app.errors import RunError, UsageError
from app.input import ratings
from app.settings import CorpusConfig, RatingsConfig
from app.text import columns, corpus, reading

TEXTS = ["one, two; three", 'a "quoted"  text', "Ünïcode 語 😀\tword", "", "two\nlines\r\nof it"]
LINES = [*TEXTS[:-1], "two lines of it"]
# Long enough that the sentences of the languages differ in more than their first bytes.
SAMPLES = {
    "English": "It was a bright cold day in April, and the clocks were striking.\n" * 9,
    "Russian": "Все счастливые семьи похожи друг на друга.\n" * 9,
    "Chinese": "天地玄黃,宇宙洪荒。日月盈昃,辰宿列張。\n" * 99,
    "Greek": "Ἄνδρα μοι ἔννεπε, Μοῦσα, πολύτροπον, ὃς μάλα πολλὰ.\n" * 3,
    "short": "hi all\n",
}


def zstd(data: bytes) -> bytes:
    pyarrow = pytest.importorskip("pyarrow")
    return pyarrow.compress(data, codec="zstd", asbytes=True)


COMPRESSORS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstd}


def written(tmp_path, data: bytes, name="corpus.txt") -> str:
    path = tmp_path / name
    path.write_bytes(data)
    return str(path)


def text_of(path: str, column="", size=1 << 20, **settings) -> str:
    progress = reading.Progress.make((path,), hashed=True)
    config = CorpusConfig(text_column=column, **settings)
    blocks = list(columns.read_text(path, config, size, progress, 0))
    assert all(len(block) <= size for block in blocks)
    # Whatever a text is read for, its digest is that of the whole content.
    assert [corpus.hash_contents(progress.digests)] == [corpus.fingerprint((path,))["contents"]]
    return b"".join(blocks).decode()


@pytest.mark.parametrize("name", ["corpus.txt", "corpus.gz", "corpus.zip"])
@pytest.mark.parametrize("kind", COMPRESSORS)
def test_compressed_text_under_any_name(tmp_path, kind, name):
    text = "one two\nthree\n" * 5000
    compress = COMPRESSORS[kind]
    parts = compress(text[:99].encode()) + compress(b"") + compress(text[99:].encode())
    for data in (compress(text.encode()), parts, text.encode()):
        path = written(tmp_path, data, name)
        assert text_of(path, size=1000) == text
        assert reading.is_cuttable(path, "") == (data == text.encode())
    assert text_of(written(tmp_path, compress(b""), name)) == ""


@pytest.mark.parametrize("language", SAMPLES)
@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig"])
def test_text_in_wide_characters(tmp_path, encoding, language):
    text = SAMPLES[language]
    path = written(tmp_path, text.encode(encoding))
    assert text_of(path, size=1024) == text
    assert not reading.is_cuttable(path, "") or encoding == "utf-8-sig"
    assert text_of(written(tmp_path, gzip.compress(text.encode(encoding)))) == text


def test_wide_characters_that_are_cut(tmp_path):
    path = written(tmp_path, SAMPLES["English"].encode("utf-16")[:-1])
    with pytest.raises(UsageError, match="corpus.txt is truncated or corrupt .*; fetch"):
        text_of(path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "x",
        "one\0two\0" + "words and more\n" * 9,
        "PAR1 is a word\n",
        "BZh9 too, and PK\n",
        "{ braces } and [ more ]\n",
        '{"a": 1} is no object\n',
        '{\n  "name": "of a file of code"\n}\n',
        "[[1, 2], [3, 4]]\n",
        "word " + "\0" * 5000 + "\nword\n",
        "\x1b[1mbold\x1b[0m\n",
    ],
)
def test_other_text_is_read_as_it_is(tmp_path, text):
    assert text_of(written(tmp_path, text.encode())) == text


def archive(opener, mode) -> bytes:
    file = io.BytesIO()
    with opener(file, mode) if opener is zipfile.ZipFile else opener(None, mode, file) as packed:
        if opener is zipfile.ZipFile:
            packed.writestr("a.txt", "words")
        else:
            packed.addfile(tarfile.TarInfo("a.txt"), io.BytesIO())
    return file.getvalue()


def parquet_of(rows: dict) -> bytes:
    pyarrow, parquet = map(pytest.importorskip, ("pyarrow", "pyarrow.parquet"))
    file = io.BytesIO()
    parquet.write_table(pyarrow.table(rows), file)
    return file.getvalue()


def content(data) -> bytes:
    """The bytes of a case; a function makes those that need pyarrow, or skips the test."""
    return data() if callable(data) else data


def npy() -> bytes:
    file = io.BytesIO()
    np.save(file, np.arange(999))
    return file.getvalue()


JPEG = b"\xff\xd8\xff\xe0\0\x10JFIF\0" + random.Random(0).randbytes(9000)
OBJECTS = b'{"text": "one two", "id": 1}\n{"text": "three"}\n'


OTHERS = [
    (archive(zipfile.ZipFile, "w"), "is a zip archive, which cannot be read; unpack it, or"),
    (archive(tarfile.open, "w"), "is a tar archive, which cannot be read; unpack"),
    (archive(tarfile.open, "w:gz"), "is a tar archive"),
    (lambda: zstd(archive(tarfile.open, "w")), "is a tar archive"),
    (b"7z\xbc\xaf\x27\x1c" + bytes(99), "is a 7z archive"),
    (b"%PDF-1.7\nwords", "is a PDF document, which cannot be read; convert it to text"),
    (JPEG, "is a picture"),
    (b"\x89PNG\r\n\x1a\n" + bytes(99), "is a picture"),
    (JPEG[11:], "is not text, but binary data; give text in UTF-8, or CSV, TSV, JSON lines or"),
    (gzip.compress(JPEG[11:]), "is not text, but binary data"),
    (npy(), "is not text, but binary data"),
    (
        SAMPLES["English"].encode("utf-16-le"),
        "is not text, but binary data; give text in UTF-8, or CSV, TSV, JSON lines or Parquet "
        "(UTF-16 needs a byte-order mark)",
    ),
    (bytes(70), "is not text, but binary data"),
    (gzip.compress(bz2.compress(b"words")), "is compressed twice; decompress it once"),
    (
        lambda: gzip.compress(parquet_of({"text": ["a"]})),
        "is a compressed Parquet file; decompress it",
    ),
    (b"version https://git-lfs.github.com/spec/v1\n", "is a pointer of Git LFS"),
    (b'[{"text": "one"},\n {"text": "two"}]', "is one JSON array; write a JSON object in each"),
    (b'\n[\n  {\n    "text": "one"\n  }\n]\n', "is one JSON array"),
    (OBJECTS, "is a file of JSON lines with the columns text, id; name the one that has the te"),
    (OBJECTS.decode().encode("utf-16"), "is a file of JSON lines with the columns text, id"),
    (b'{"text": "' + b"long " * 20_000 + b'"}', "is a file of JSON lines with the columns text;"),
    (
        lambda: parquet_of({"text": ["a"], "id": [1]}),
        "is a Parquet file with the columns text, id; na",
    ),
    (lambda: parquet_of({"text": ["a"] * 999})[:-99], "is truncated or corrupt"),
    (gzip.compress(b"words " * 999)[:-9], "is truncated or corrupt"),
    (lambda: zstd(b"words " * 999)[:-9], "is truncated or corrupt"),
]


# Bytes of archives have times in them, so they are no names of tests.
@pytest.mark.parametrize("number", range(len(OTHERS)))
def test_other_content_is_refused_in_one_line(tmp_path, number):
    data, message = OTHERS[number]
    path = written(tmp_path, content(data))
    with pytest.raises(UsageError) as raised:
        text_of(path)
    told = str(raised.value)
    assert told.startswith(f"{path} {message}") and ";" in told and "\n" not in told


def as_csv(separator: str) -> bytes:
    cell = '"{}"'.format
    rows = [["id", "text"], *([str(i), text] for i, text in enumerate(TEXTS))]
    lines = (separator.join(cell(part.replace('"', '""')) for part in row) for row in rows)
    return "".join(f"{line}\r\n" for line in lines).encode()


ROWS = [{"id": number, "text": text} for number, text in enumerate(TEXTS)]
TABLES = {
    "commas": as_csv(","),
    "semicolons": as_csv(";"),
    "tabs": as_csv("\t"),
    "objects": "".join(json.dumps(row) + "\n" for row in ROWS).encode(),
    "objects as they are": "\n\r\n".join(json.dumps(r, ensure_ascii=False) for r in ROWS).encode(),
    "parquet": lambda: parquet_of({"id": range(len(TEXTS)), "text": TEXTS}),
    "binary parquet": lambda: parquet_of({"text": [text.encode() for text in TEXTS]}),
    "encoded parquet": lambda: parquet_of(
        {"text": pytest.importorskip("pyarrow").array(TEXTS).dictionary_encode()}
    ),
}


@pytest.mark.parametrize("table", TABLES)
def test_the_text_of_a_column(tmp_path, table):
    expected = "".join(f"{line}\n" for line in LINES)
    variants = [content(TABLES[table])]
    if "parquet" not in table:
        variants += [gzip.compress(TABLES[table]), TABLES[table].decode().encode("utf-16")]
        variants += [TABLES[table].replace(b"\r\n", b"\n"), b"\xef\xbb\xbf" + TABLES[table]]
    for data in variants:
        path = written(tmp_path, data)
        for size in (1024, 60):
            assert text_of(path, "text", size) == expected
        assert not reading.is_cuttable(path, "text")


def test_a_table_without_rows_has_no_text(tmp_path):
    for empty in (b"id,text\n", parquet_of({"text": np.array([], "str")})):
        assert text_of(written(tmp_path, empty), "text") == ""


def test_cells_that_are_no_text(tmp_path):
    rows = [{"text": None}, {"text": 5}, {"id": 1}, {"text": 2.5}, {"text": True}]
    data = "".join(json.dumps(row) + "\n" for row in rows) + '{"text": "x\\ud800y"}\n'
    assert text_of(written(tmp_path, data.encode()), "text") == "\n5\n\n2.5\nTrue\nx\ufffdy\n"
    data = parquet_of({"text": [None, "a", None]})
    assert text_of(written(tmp_path, data), "text") == "\na\n\n"


UNREADABLE = [
    (as_csv(","), "--text_column=txt: {path} has the columns id, text; name one of them, such"),
    (as_csv(";"), "--text_column=txt: {path} has the columns id, text; name one of them, such"),
    (as_csv("\t"), "--text_column=txt: {path} has the columns id, text; name one of them"),
    (OBJECTS, "--text_column=txt: {path} has the columns text, id; name one of them, such as te"),
    (
        lambda: parquet_of({"Text": ["a"]}),
        "--text_column=txt: {path} has the columns Text; name one of",
    ),
    (b"", "--text_column=txt: {path} has the columns none; name one"),
    (b"a,txt\nb\n", "{path}, line 2: 1 of 2 fields; correct or remove it"),
    (b"txt,a\nb,c,d\n", "{path}, line 2: 3 fields where the first one has 2; quote cells that"),
    (b'txt,a\n"b,c\n', "{path}, line 2: unexpected end of data; close"),
    (b"txt,txt\na,b\n", "{path}: 2 columns are named txt; remove or rename"),
    (b'{"txt": "a"}\n\n{"txt": \n', "{path}, line 3: is no JSON object, as the first line is ("),
    (b'{"txt": "a"}\n["txt"]\n', "{path}, line 2: is no JSON object"),
    (b'{"txt": "a"}\n{"txt": ["a", "b"]}\n', "{path}, line 2: txt is a list or an object; name"),
    (lambda: parquet_of({"txt": [["a"]]}), "{path}, row 1: txt is a list or an object"),
    (OBJECTS.replace(b"text", b"txt")[:-5], "{path}, line 2: is no JSON object"),
    (JPEG, "{path} is a picture"),
]


@pytest.mark.parametrize("number", range(len(UNREADABLE)))
def test_columns_that_cannot_be_read(tmp_path, number):
    data, message = UNREADABLE[number]
    path = written(tmp_path, content(data))
    with pytest.raises(UsageError) as raised:
        text_of(path, "txt")
    told = str(raised.value)
    assert told.startswith(message.format(path=path)) and "\n" not in told


def test_damaged_files_are_read_or_refused_in_one_line(tmp_path):
    draw = random.Random(0)
    rows = {"user": ["a", "b"], "item": [1.0, 2.0], "text": ["x", "y"]}
    table = b"user,item,text\na,1.0,x\nb,2,y\n"
    objects = b'{"user": "a", "item": 1, "text": "x"}\n{"user": "b", "item": 2.0, "text": null}\n'
    files = [table, objects, parquet_of(rows), zstd(table), gzip.compress(objects)]
    files += [table.decode().encode("utf-16"), b"u:token\ti:token\nx\ty\n", b"a 1 2\nb 2\n"]
    pieces = [b"\0", b"\xff", *(b'" \n \r , ; { ['.split(b" ")), b"\xff\xfe", b"PAR1", b"1.0"]
    outcomes = set()
    for _ in range(400):
        data = bytearray(draw.choice(files))
        for _ in range(draw.randint(1, 4)):
            start = draw.randrange(len(data) + 1)
            data[start : start + draw.choice([0, 0, 1, 9])] = draw.choice([b"", *pieces])
        path = written(tmp_path, bytes(data[: draw.choice([len(data), start])]))
        for read in (text_of, lambda path: text_of(path, "text"), read_pairs):
            try:
                outcomes.add((read, bool(read(path))))
            except (UsageError, RunError) as error:
                assert path in str(error) and "\n" not in str(error)
    assert {read for read, found in outcomes if found} >= {text_of, read_pairs}


def read_pairs(path):
    return ratings.read([path], RatingsConfig(user_column="user", item_column="item")).user_keys


# Blocks of text.

ALPHABET = "ab\u00e9\u20ac\U0001f600 \t\n"


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


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz"])
@pytest.mark.parametrize("damage", ["truncated", "corrupt"])
def test_damaged_compressed_files_are_named(tmp_path, suffix, damage):
    data = COMPRESSORS[suffix](base64.encodebytes(random.Random(2).randbytes(100_000)))
    damaged = {
        "truncated": data[: len(data) // 2],
        "corrupt": data[:5000] + bytes(500) + data[5500:],
    }[damage]
    path = written(tmp_path, damaged, f"text.{suffix}")
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


def lines_of(path):
    return list(reading.read_lines(path, "words"))


def test_lines_come_with_their_numbers_and_without_a_byte_order_mark(tmp_path):
    path = tmp_path / "words"
    path.write_bytes(b"\xef\xbb\xbfone\r\n\n\xef\xbb\xbftwo")
    assert lines_of(path) == [(1, b"one\r\n"), (2, b"\n"), (3, b"\xef\xbb\xbftwo")]


def test_lines_of_a_pipe_are_read():
    # As a shell gives `<(zcat words.gz)`.
    reading, writing = os.pipe()
    with open(writing, "wb") as file:
        file.write(b"one\ntwo\n")
    with open(reading, "rb"):
        assert lines_of(f"/dev/fd/{reading}") == [(1, b"one\n"), (2, b"two\n")]


def test_a_device_and_an_endless_line_are_refused(tmp_path, monkeypatch):
    with pytest.raises(
        UsageError, match="^cannot read /dev/zero: it is a folder or a device, .*of words$"
    ):
        lines_of("/dev/zero")
    path = tmp_path / "words"
    path.write_bytes(gzip.compress(b"one\n"))
    with pytest.raises(UsageError, match=r"words is compressed; decompress it, as zcat does for"):
        lines_of(path)
    path.write_bytes(b"12345678\n123456789\n")
    monkeypatch.setattr(reading, "LONGEST_LINE", 10)
    assert len(lines_of(path)) == 2
    monkeypatch.setattr(reading, "LONGEST_LINE", 9)
    with pytest.raises(UsageError, match="words, line 2: longer than 9 bytes; give a file of wo"):
        lines_of(path)
