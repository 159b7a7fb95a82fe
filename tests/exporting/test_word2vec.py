import bz2
import gzip
import io
import lzma
import os
import struct
import subprocess
import sys
import threading
import time
import tracemalloc
import zipfile

import numpy as np
import pytest
from gensim.models import KeyedVectors

from app.errors import UsageError
from app.exporting import word2vec
from app.text import vector_files
from app.types import WordVectors


def zipped(data):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("glove.txt", data)
    return buffer.getvalue()


def assert_equal(found, wanted):
    assert found.tokens == wanted.tokens
    assert found.matrix.dtype == np.float32
    np.testing.assert_array_equal(found.matrix, wanted.matrix)


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".xz"])
@pytest.mark.parametrize("binary", [False, True])
def test_gensim_and_we_read_what_we_write(vectors, tmp_path, binary, suffix):
    path = tmp_path / f"vectors{suffix}"
    word2vec.write(vectors, path, binary)
    assert_equal(vector_files.read(path), vectors)
    peer = KeyedVectors.load_word2vec_format(str(path), binary=binary)
    assert_equal(WordVectors(peer.index_to_key, peer.vectors), vectors)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("seed", range(3))
def test_any_float32_is_read_back_exactly(tmp_path, seed):
    draw = np.random.default_rng(seed)
    numbers = draw.integers(0, 2**32, size=60_000, dtype=np.uint64).astype(np.uint32)
    matrix = numbers.view(np.float32)
    powers = np.float32([s * 10.0**p for p in range(-44, 38) for s in (1, -1, 9.9999999, 0.5)])
    limits = np.finfo(np.float32)
    others = [0.0, -0.0, limits.max, limits.min, limits.tiny, limits.smallest_subnormal]
    near = np.nextafter(powers, np.float32(np.inf), dtype=np.float32)
    matrix = np.concatenate([np.float32(others), powers, near, matrix[np.isfinite(matrix)]])
    matrix = matrix[: len(matrix) // 7 * 7].reshape(-1, 7)
    vectors = WordVectors([f"w{row}" for row in range(len(matrix))], matrix)
    word2vec.write(vectors, tmp_path / "vectors")
    lines = (tmp_path / "vectors").read_text().splitlines()[1:]
    found = np.array([line.split(" ")[1:] for line in lines], np.float64).astype(np.float32)
    np.testing.assert_array_equal(found.view(np.uint32), matrix.view(np.uint32))
    assert_equal(vector_files.read(tmp_path / "vectors"), vectors)


@pytest.mark.parametrize("binary", [False, True])
def test_numbers_that_are_not_finite(tmp_path, binary):
    path, matrix = tmp_path / "vectors", np.ones((600, 3), np.float32)
    matrix[511:, 1:] = [-np.inf, np.nan]
    word2vec.write(WordVectors([f"w{row}" for row in range(600)], matrix), path, binary=binary)
    if not binary:
        assert path.read_text().splitlines()[512] == "w511 1 -inf nan"
    message = f"^{path}, row 512: the vector of 'w511' has -inf, which is not a finite number; corr"
    with pytest.raises(UsageError, match=message):
        vector_files.read(path)


@pytest.mark.slow
def test_spacy_loads_what_we_write(vectors, tmp_path):
    spacy = pytest.importorskip("spacy")
    word2vec.write(vectors, tmp_path / "vectors.txt.gz")
    command = [sys.executable, "-m", "spacy", "init", "vectors", "xx"]
    files = [tmp_path / "vectors.txt.gz", tmp_path / "model"]
    subprocess.run([*command, *map(str, files)], check=True, capture_output=True)
    found = spacy.load(tmp_path / "model").vocab
    for token, row in zip(vectors.tokens, vectors.matrix, strict=True):
        np.testing.assert_array_equal(found.get_vector(token), row)
    assert not found.has_vector("unknown")


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("binary", [False, True])
def test_we_read_what_gensim_writes(vectors, tmp_path, binary, suffix):
    path = tmp_path / f"vectors{suffix}"
    peer = KeyedVectors(5)
    peer.add_vectors(vectors.tokens, vectors.matrix)
    peer.save_word2vec_format(str(path), binary=binary)
    assert_equal(vector_files.read(path), vectors)


def test_we_read_what_word2vec_c_writes(tmp_path):
    path = tmp_path / "vectors"
    rows = [("</s>", (0.5, -2.0)), ("word", (0.25, 1.5))]
    path.write_bytes(
        b"2 2\n" + b"".join(b"%b %b\n" % (w.encode(), struct.pack("<2f", *v)) for w, v in rows)
    )
    wanted = WordVectors(["</s>", "word"], np.array([[0.5, -2], [0.25, 1.5]], np.float32))
    assert_equal(vector_files.read(path), wanted)
    path.write_text("2 2\n" + "".join(f"{w} {x:f} {y:f} \n" for w, (x, y) in rows))
    assert_equal(vector_files.read(path), wanted)


def test_numbers_that_look_like_text_are_still_binary(tmp_path):
    path = tmp_path / "vectors"
    matrix = np.frombuffer(b"\n\n\n\n 1 2" * 30, np.float32).reshape(-1, 3)
    word2vec.write(WordVectors([f"w{n}" for n in range(len(matrix))], matrix), path, binary=True)
    np.testing.assert_array_equal(vector_files.read(path).matrix, matrix)


def test_rows_longer_than_a_read(tmp_path, monkeypatch):
    monkeypatch.setattr(vector_files, "_READ_BYTES", 1)
    monkeypatch.setattr(word2vec, "_ROWS_PER_WRITE", 3)
    matrix = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32)
    vectors = WordVectors([f"word{n}" for n in range(10)], matrix)
    word2vec.write(vectors, tmp_path / "vectors", binary=True)
    assert_equal(vector_files.read(tmp_path / "vectors"), vectors)


def test_glove_text_has_no_header_and_words_with_spaces(tmp_path):
    path = tmp_path / "glove.txt"
    path.write_text("the 0.5 1\n. . . 2 3\nnan 4 1e-39\n")
    found = vector_files.read(path)
    assert found.tokens == ["the", ". . .", "nan"]
    np.testing.assert_array_equal(found.matrix, np.float32([[0.5, 1], [2, 3], [4, 1e-39]]))
    assert found.counts is None


def test_bytes_that_are_not_utf8_and_repeated_words(tmp_path):
    path = tmp_path / "vectors"
    path.write_bytes(b"4 1\ncaf\xe9 1\na 2\na 3\ncaf\xff 4\n")
    found = vector_files.read(path)
    assert found.tokens == ["caf\ufffd", "a"]
    np.testing.assert_array_equal(found.matrix, [[1], [2]])


@pytest.mark.parametrize("content", [b"a 1\n" * 9, b"9 1\n" + b"a \xff\xff\xff\xfe" * 9])
def test_a_file_that_repeats_its_words_is_refused(tmp_path, monkeypatch, content):
    path = tmp_path / "vectors"
    path.write_bytes(content)
    monkeypatch.setattr(vector_files, "_MOST_REPEATED", 8)
    assert vector_files.read(path).tokens == ["a"]
    monkeypatch.setattr(vector_files, "_MOST_REPEATED", 5)
    with pytest.raises(UsageError, match="row 7: more than 5 rows repeat an earlier word; give a"):
        vector_files.read(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "line 1: neither a header"),
        (b"word\n", "line 1: neither a header"),
        (b"some words of prose\n", "line 1: neither a header"),
        (b"0 5\n", "line 1: announces 0 x 5"),
        (b"2 3\na 1 2\nb 1 2\n", "line 2: 2 numbers, where line 1 announces 3.* 1 to '2 2'"),
        (b"2 1\na 1 2\nb 1 2\n", "line 2: 2 numbers, where line 1 announces 1.* 1 to '2 2'"),
        (b"3 2\na 1 2\nb 1 2\n", "ends after 2 of the 3 rows.*, or correct line 1 to '2 2'"),
        (b"2 2\n\t1 2\n 3 4\n", "no row has a word"),
        (b"2 2\na 1 2\nb 1\n", "line 3: not a word and 2 numbers"),
        (b"2 2\na 1 2\nb 1 x\n", "line 3: not a word and 2 numbers"),
        (b"a 1 2\nb 1\n", "line 2: not a word and 2 numbers"),
        (b"2 2\n", "ends after 0 of the 2 rows"),
        (b"2 2\na " + bytes(8) + b"b " + bytes(7), "ends after 1 of the 2 rows.*read as binary"),
        (b"9 2\na " + bytes(8) + b"x" * 70_000, "row 1: no word is found"),
        (b"99999999999999 300\na " + bytes(2400), "ends after"),
    ],
)
def test_a_malformed_file_is_named_with_its_place(tmp_path, content, message):
    path = tmp_path / "vectors.bin"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=rf"vectors\.bin(?=.*{message}).*; (copy|give)"):
        vector_files.read(path)


@pytest.mark.parametrize(
    ("rows", "binary"),
    [
        (b"3 2\n 1 2\na 3 4\n\t5 6\n", False),
        (b"a 3 4\n\t1 2\n  5 6\n", False),
        (b"2 2\n " + struct.pack("<2f", 1, 2) + b"\na " + struct.pack("<2f", 3, 4), True),
    ],
)
def test_rows_without_a_word_are_left_out_and_counted(tmp_path, caplog, rows, binary):
    path = tmp_path / "vectors"
    path.write_bytes(rows)
    found = vector_files.read(path)
    assert found.tokens == ["a"]
    np.testing.assert_array_equal(found.matrix, [[3, 4]])
    assert f"{path}: {1 if binary else 2} row(s) without a word are left out" in caplog.text


def test_zero_vectors_are_kept_and_named(tmp_path, caplog):
    path = tmp_path / "vectors"
    path.write_bytes(b"a 1 2\nb 0 0\nc 0 0.0\n")
    np.testing.assert_array_equal(vector_files.read(path).matrix, [[1, 2], [0, 0], [0, 0]])
    assert f"{path}: 2 word(s) have a zero vector, which is near to no word; the first is 'b'" in (
        caplog.text
    )


def test_packed_vectors_are_known_by_their_content(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    path, data = tmp_path / "vectors.txt", b"a 1 2\nb 1 2\n"
    for pack in (gzip.compress, bz2.compress, lzma.compress, pyarrow.Codec("zstd").compress):
        path.write_bytes(pack(data))
        assert vector_files.read(path).tokens == ["a", "b"]
    path.write_bytes(zipped(data))
    with pytest.raises(UsageError, match=f"^{path} is a zip archive, which cannot be read; unpack"):
        vector_files.read(path)
    path.write_bytes(gzip.compress(gzip.compress(data)[:-4]))
    with pytest.raises(UsageError, match=f"^{path} is compressed twice; decompress it once"):
        vector_files.read(path)
    path.write_bytes(b"\xef\xbb\xbf" + gzip.compress(data))
    with pytest.raises(UsageError, match=f"^{path}, line 1: neither a header nor a word"):
        vector_files.read(path)


def test_a_word_that_begins_as_a_packed_file(tmp_path):
    (tmp_path / "vectors").write_text("BZhang 1\nPK 2\n")
    assert vector_files.read(tmp_path / "vectors").tokens == ["BZhang", "PK"]


@pytest.mark.parametrize("module", [gzip, bz2, lzma])
def test_a_damaged_compressed_file_is_named(vectors, tmp_path, module):
    path = tmp_path / f"vectors.{ {gzip: 'gz', bz2: 'bz2', lzma: 'xz'}[module] }"
    word2vec.write(vectors, path)
    whole = path.read_bytes()
    for damaged in (whole[:-20], b"not compressed", whole[:30] + b"damage" + whole[36:]):
        path.write_bytes(damaged)
        with pytest.raises(UsageError, match=r"vectors\..*(again|give)"):
            vector_files.read(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UsageError, match="none.bin: No such file.*give a word2vec file"):
        vector_files.read(tmp_path / "none.bin")


@pytest.mark.parametrize("token", ["New York", "a\tb", "a\n", ""])
def test_a_word_that_the_format_cannot_hold_is_refused(tmp_path, token):
    vectors = WordVectors(["a", token], np.zeros((2, 1), np.float32))
    with pytest.raises(UsageError, match="row 1.*saved_model"):
        word2vec.write(vectors, tmp_path / "vectors")
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written(vectors, tmp_path):
    with pytest.raises(UsageError, match="is a folder"):
        word2vec.write(vectors, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="^cannot write .*file/vectors: .*/file is a file"):
        word2vec.write(vectors, tmp_path / "file" / "vectors")


@pytest.mark.parametrize("content", ["2 1\na 1\nb 2\n", "a 1\nb 2\n"])
def test_a_byte_order_mark_is_skipped(tmp_path, content):
    path = tmp_path / "vectors"
    path.write_text("\ufeff" + content, encoding="utf-8")
    assert_equal(vector_files.read(path), WordVectors(["a", "b"], np.array([[1], [2]], np.float32)))


@pytest.mark.parametrize("binary", [False, True])
def test_a_pipe_is_read(vectors, tmp_path, binary):
    word2vec.write(vectors, tmp_path / "vectors", binary)
    data = (tmp_path / "vectors").read_bytes()
    zstd = pytest.importorskip("pyarrow").compress(data, "zstd", asbytes=True)
    for sent in (data, gzip.compress(data), bz2.compress(data), lzma.compress(data), zstd):
        reading, writing = os.pipe()

        def send(parts=(sent[:1], sent[1:2], sent[2:]), writing=writing):
            with open(writing, "wb", buffering=0) as file:
                for part in parts:
                    file.write(part)
                    time.sleep(0.01)  # the other end reads as much as there is

        thread = threading.Thread(target=send)
        thread.start()
        with open(reading, "rb"):
            assert_equal(vector_files.read(f"/dev/fd/{reading}"), vectors)
        thread.join()


def test_a_device_is_refused():
    with pytest.raises(UsageError, match="^/dev/null: it is a folder or a device"):
        vector_files.read("/dev/null")


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (b"3 2\na 1 2\n", "line 3: not a word and 2 numbers"),
        (b"a 1 2\n", "line 2: not a word and 2 numbers"),
        (b"3 99999999999\na 1 2\n", "line 1: announces 3 x 99999999999 numbers"),
        (b"3 " + b"9" * 5000 + b"\n", "line 1: announces too many numbers"),
    ],
)
def test_an_endless_line_is_not_read_whole(tmp_path, start, message):
    path = tmp_path / "vectors.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(start + bytes(40 << 20))
    tracemalloc.start()
    with pytest.raises(UsageError, match=message):
        vector_files.read(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20 << 20
