"""Files that are not trusted: memory is that of their true size, whatever they announce."""

import base64
import io
import json
import struct
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest
import tensorflow as tf

from app.errors import DamagedError, UsageError
from app.keras import ClassSoftmax
from app.tables import arrays, row_files
from app.tables.disk.file import FileTable
from app.tables.disk.table_file import Journal, TableFile, journal_path
from app.tables.dynamic.dynamic import DynamicTable
from app.tables.dynamic.keys import STATE, KeyMap, read_keys
from app.tables.initial import Constant
from app.text import columns, reading, vector_files
from app.text.fasttext import model_file

HUGE = 2**30


def array_head(count):
    """Return an .npy file that announces numbers and has none."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": "<i8", "fortran_order": False, "shape": (count, 2)}
    )
    return file.getvalue()


def edit(path, change):
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


@pytest.mark.parametrize("lengths", [[9, -9, 9], [9, 9, 9], [1, 1, 1], [2**62, 2**62, 2**62]])
def test_lengths_of_strings_that_are_not_in_the_file(lengths, tmp_path):
    keys = KeyMap(5, "string")
    keys.see(np.array([b"abc", b"def", b"ghi"], object), np.ones(3, np.int64), 1)
    keys.save(tmp_path / "keys")
    data = np.array(lengths, np.int64).tobytes()
    (tmp_path / "keys" / "keys.lengths").write_bytes(data)

    def mark(state):
        state["files"]["keys"]["lengths"]["mark"] = [len(data), zlib.crc32(data)]

    edit(tmp_path / "keys" / STATE, mark)
    with pytest.raises(DamagedError, match="keys.json is damaged: the lengths of 'keys' .* bytes;"):
        read_keys(tmp_path / "keys")


def test_rows_that_are_not_in_the_file(tmp_path):
    table = DynamicTable(KeyMap(5, "int64"), 2, Constant(0.0))
    table.locate(tf.constant([7, 8]))
    table.snapshot(tmp_path)

    def announce(manifest):
        manifest |= {"rows": HUGE, "columns": HUGE, "mark": [4 * HUGE**2, 0]}

    edit(tmp_path / "values.json", announce)
    with pytest.raises(DamagedError, match=rf"values is damaged: 16 bytes, where {4 * HUGE**2} we"):
        row_files.read([tmp_path / "values"], tmp_path)


def test_a_journal_of_rows_that_are_not_in_the_file(tmp_path):
    def table(resume):
        file = TableFile(tmp_path / "rows", "run", resume)
        FileTable(file, "words", 3, 2, tf.zeros)
        return file

    file, snapshot = table(False), tmp_path / "step"
    snapshot.mkdir()
    file.snapshot(snapshot)
    file.commit([snapshot])
    for section, ids, row_bytes in ((9, [0], 8), (0, [3], 8), (0, [-1], 8), (0, [0], 16)):
        journal = Journal(journal_path(tmp_path / "rows", 1))
        journal.append(section, np.array(ids), np.zeros(1, f"V{row_bytes}"))
        with pytest.raises(DamagedError, match="rows.undo-1 is damaged: a record of rows that its"):
            table(True).restore(snapshot)


def test_an_archive_whose_array_is_not_in_the_file(tmp_path):
    inner = io.BytesIO()
    np.savez(inner, users=np.zeros(2))
    for entry in (array_head(2**40), array_head(2), array_head(0) + b"more", inner.getvalue()):
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
            archive.writestr("users.npy", entry)
        with pytest.raises(DamagedError, match=r"a.npz is damaged: "):
            arrays.read_npz(tmp_path / "a.npz", ["users"])
    np.savez_compressed(tmp_path / "a.npz", users=np.zeros(10**6))
    with pytest.raises(DamagedError, match=r"a.npz is damaged: 'users' is compressed"):
        arrays.read_npz(tmp_path / "a.npz", ["users"])


@pytest.mark.parametrize("text", [zlib.compress(bytes(10**6)), zlib.compress(b""), b"text"])
def test_counts_of_a_layer_that_are_more_than_its_words(text):
    config = ClassSoftmax(10, counts=np.arange(10)).get_config()
    config["counts"] = base64.b64encode(text).decode()
    with pytest.raises(ValueError, match="the counts of a saved layer are (not those|damaged)"):
        ClassSoftmax.from_config(config)


def fasttext_file(dim=4, longest=0, columns=4):
    """Return a file of word vectors with one quantised row."""
    args = model_file.Args(dim, 5, 1, 1, 5, 1, 2, 2, int(longest > 0), 1, longest, 1, 1e-4)
    return b"".join(
        [
            model_file.SIGNATURE.pack(model_file.MAGIC, model_file.VERSION),
            model_file.ARGS.pack(*args),
            model_file.SIZES.pack(1, 1, 0, 1, -1),
            b"word\0" + model_file.ENTRY.pack(1, model_file.WORD),
            model_file.FLAG.pack(True) + model_file.QUANTIZED.pack(False, 1, dim, 1) + b"\0",
            model_file.QUANTIZER.pack(columns, 1, columns, columns) + bytes(4 * 256 * columns),
            model_file.FLAG.pack(False) + model_file.SHAPE.pack(1, dim) + bytes(4 * dim),
        ]
    )


def tensors(**changed):
    """Return a file of safetensors of two words; `changed` are its vectors' fields, or all."""
    tokens = changed.pop("tokens", b'["a", "b"]')
    vectors = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]} | changed
    parts = {"vectors": vectors, "tokens": {"dtype": "U8", "shape": [len(tokens)]}}
    parts["tokens"]["data_offsets"] = [16, 16 + len(tokens)]
    header = json.dumps(parts).encode()
    return struct.pack("<Q", len(header)) + header + bytes(16) + tokens


@pytest.mark.parametrize(
    "content",
    [
        tensors(data_offsets=[0, 2**62]),
        tensors(data_offsets=[-16, 2**40]),
        tensors(shape=[2**40, 2**40]),
        tensors(dtype="../F32"),
        tensors(tokens=b"[" * 100_000),
        tensors(tokens=b'["a"]'),
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 500_000) + b'{"a":' * 100_000,
        b"",
    ],
)
def test_tensors_that_are_not_in_the_file(content, tmp_path):
    path = tmp_path / "vectors.safetensors"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=f"^{path}: .*; copy it again, or give a file of `lexrow "):
        vector_files.read(path)
    path.write_bytes(tensors())
    assert vector_files.read(path).matrix.tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (fasttext_file(), "quantised word vectors; give a .bin file of fastText"),
        (fasttext_file(dim=1 << 20), r"damaged \(1 parts of 4 columns in the input matrix\)"),
        (fasttext_file(longest=1 << 16), r"damaged \(maxn 65536\)"),
        (b"%d %d\nword " % (10**17, 1 << 20) + bytes(9), "ends after 0 of the"),
        (b"2 99999999999\nword " + bytes(9), "announces 2 x 99999999999 numbers"),
        (struct.pack("<i", model_file.MAGIC), "ends within the head"),
    ],
)
def test_vectors_that_are_not_in_the_file(content, message, tmp_path):
    path = tmp_path / "vectors.bin"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=f"^{path}.*: {message}|^{path}, line 1: {message}"):
        vector_files.read(path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", ["text", "category", "json", "bytes", "list"])
def test_a_cell_that_is_stored_once_and_repeated(kind, tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path, ids = tmp_path / "a.parquet", pa.array([0] * 64, pa.int32())
    repeated = pa.DictionaryArray.from_arrays(ids, pa.array(["x" * (1 << 20)]))
    if kind == "bytes":
        repeated = repeated.dictionary_decode().cast(pa.binary()).cast(pa.binary(1 << 20))
    if kind == "json":
        repeated = pa.ExtensionArray.from_storage(pa.json_(), repeated.dictionary_decode())
    if kind == "list":
        repeated = pa.ListArray.from_arrays(pa.array(range(65), pa.int32()), repeated)
    table = pa.table({"a": repeated, "b": range(64)})
    parquet.write_table(table, path, compression="zstd", store_schema=kind == "category")
    assert path.stat().st_size < 4_000
    sizes = [(len(batch), batch.nbytes) for batch in columns.read_batches(str(path), ["a"])]
    assert sum(count for count, _ in sizes) == 64
    assert max(count for count, _ in sizes) <= 16 and max(size for _, size in sizes) < 17 << 20
    rows = columns.read_rows(str(path), {"a": "a"}, "replace", 0, reading.Progress([0], [0]), 0)
    assert [len(cell[0] if kind == "list" else cell) for _, (cell,) in rows] == [1 << 20] * 64
    (numbers,) = columns.read_batches(str(path), ["b"])
    assert len(numbers) == 64


def test_rows_of_csv_that_do_not_end(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n" + '"\n",' * 20_000)
    monkeypatch.setattr(columns, "LONGEST", 10_000)
    rows = columns.read_rows(str(path), {"a": "a"}, "replace", 5_000, reading.Progress([0], [0]), 0)
    with pytest.raises(UsageError, match="line 3: row is longer than 10,000 characters; close, d"):
        list(rows)


def test_objects_of_json_lines_that_are_long_are_not_kept(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(('{"a": "%s"}\n' % ("x" * 400_000)) * 40)
    rows = columns.read_rows(
        str(path), {"a": "a"}, "replace", 1 << 20, reading.Progress([0], [0]), 0
    )
    tracemalloc.start()
    try:
        assert sum(len(cell) for _, (cell,) in rows) == 16_000_000
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
