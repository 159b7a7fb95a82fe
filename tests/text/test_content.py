"""Files are read by what they contain, whatever their name, or refused by one line."""

import bz2
import gzip
import io
import json
import lzma
import random
import tarfile
import zipfile

import numpy as np
import pytest

from app.errors import RunError, UsageError
from app.input import ratings
from app.settings import CorpusConfig, RatingsConfig
from app.text import columns, corpus, reading

pyarrow = pytest.importorskip("pyarrow")

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
    assert [corpus.hash_contents(progress)] == [corpus.fingerprint((path,))["contents"]]
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
    from pyarrow import parquet

    file = io.BytesIO()
    parquet.write_table(pyarrow.table(rows), file)
    return file.getvalue()


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
    (zstd(archive(tarfile.open, "w")), "is a tar archive"),
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
    (gzip.compress(parquet_of({"text": ["a"]})), "is a compressed Parquet file; decompress it"),
    (b"version https://git-lfs.github.com/spec/v1\n", "is a pointer of Git LFS"),
    (b'[{"text": "one"},\n {"text": "two"}]', "is one JSON array; write a JSON object in each"),
    (b'\n[\n  {\n    "text": "one"\n  }\n]\n', "is one JSON array"),
    (OBJECTS, "is a file of JSON lines with the columns text, id; name the one that has the te"),
    (OBJECTS.decode().encode("utf-16"), "is a file of JSON lines with the columns text, id"),
    (b'{"text": "' + b"long " * 20_000 + b'"}', "is a file of JSON lines with the columns text;"),
    (parquet_of({"text": ["a"], "id": [1]}), "is a Parquet file with the columns text, id; na"),
    (parquet_of({"text": ["a"] * 999})[:-99], "is truncated or corrupt"),
    (gzip.compress(b"words " * 999)[:-9], "is truncated or corrupt"),
    (zstd(b"words " * 999)[:-9], "is truncated or corrupt"),
]


# Bytes of archives have times in them, so they are no names of tests.
@pytest.mark.parametrize("number", range(len(OTHERS)))
def test_other_content_is_refused_in_one_line(tmp_path, number):
    data, message = OTHERS[number]
    path = written(tmp_path, data)
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
    "parquet": parquet_of({"id": range(len(TEXTS)), "text": TEXTS}),
    "binary parquet": parquet_of({"text": [text.encode() for text in TEXTS]}),
    "encoded parquet": parquet_of({"text": pyarrow.array(TEXTS).dictionary_encode()}),
}


@pytest.mark.parametrize("table", TABLES)
def test_the_text_of_a_column(tmp_path, table):
    expected = "".join(f"{line}\n" for line in LINES)
    variants = [TABLES[table]]
    if "parquet" not in table:
        variants += [gzip.compress(TABLES[table]), TABLES[table].decode().encode("utf-16")]
        variants += [TABLES[table].replace(b"\r\n", b"\n"), b"\xef\xbb\xbf" + TABLES[table]]
    for data in variants:
        path = written(tmp_path, data)
        for size in (1024, 60):
            assert text_of(path, "text", size) == expected
        assert not reading.is_cuttable(path, "text")


def test_a_table_without_rows_has_no_text(tmp_path):
    for empty in (b"id,text\n", parquet_of({"text": pyarrow.array([], "string")})):
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
    (parquet_of({"Text": ["a"]}), "--text_column=txt: {path} has the columns Text; name one of"),
    (b"", "--text_column=txt: {path} has the columns none; name one"),
    (b"a,txt\nb\n", "{path}, line 2: 1 of 2 fields; correct or remove it"),
    (b"txt,a\nb,c,d\n", "{path}, line 2: 3 fields where the first one has 2; quote cells that"),
    (b'txt,a\n"b,c\n', "{path}, line 2: unexpected end of data; close"),
    (b"txt,txt\na,b\n", "{path}: 2 columns are named txt; remove or rename"),
    (b'{"txt": "a"}\n\n{"txt": \n', "{path}, line 3: is no JSON object, as the first line is ("),
    (b'{"txt": "a"}\n["txt"]\n', "{path}, line 2: is no JSON object"),
    (b'{"txt": "a"}\n{"txt": ["a", "b"]}\n', "{path}, line 2: txt is a list or an object; name"),
    (parquet_of({"txt": [["a"]]}), "{path}, row 1: txt is a list or an object"),
    (OBJECTS.replace(b"text", b"txt")[:-5], "{path}, line 2: is no JSON object"),
    (JPEG, "{path} is a picture"),
]


@pytest.mark.parametrize("number", range(len(UNREADABLE)))
def test_columns_that_cannot_be_read(tmp_path, number):
    data, message = UNREADABLE[number]
    path = written(tmp_path, data)
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
