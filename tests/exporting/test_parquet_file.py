import os
import sys

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from app.errors import UsageError
from app.exporting import array_files
from app.types import WordVectors


def test_pyarrow_reads_what_we_write(vectors, tmp_path):
    path = tmp_path / "new" / "vectors.parquet"
    for _ in range(2):  # again over the first
        array_files.write_parquet(vectors, path)
    table = parquet.read_table(path, page_checksum_verification=True)
    assert table.column_names == ["token", "count", "vector"]
    assert table.schema.field("vector").type == pyarrow.list_(pyarrow.float32(), 5)
    assert table["token"].to_pylist() == vectors.tokens
    assert table["count"].to_pylist() == vectors.counts.tolist()
    matrix = table["vector"].combine_chunks().flatten().to_numpy().reshape(-1, 5)
    np.testing.assert_array_equal(matrix, vectors.matrix)
    assert os.listdir(path.parent) == [path.name]


def test_more_words_than_a_block_without_counts(tmp_path):
    rows = 10_000
    matrix = np.random.default_rng(0).normal(size=(rows, 3)).astype(np.float32)
    vectors = WordVectors([f"word{row}" for row in range(rows)], matrix)
    array_files.write_parquet(vectors, tmp_path / "file")
    file = parquet.ParquetFile(tmp_path / "file")
    assert file.num_row_groups > 1
    table = file.read()
    assert table["count"].null_count == rows
    assert table["token"].to_pylist() == vectors.tokens
    np.testing.assert_array_equal(np.stack(table["vector"].to_numpy()), matrix)


def test_no_word(tmp_path):
    array_files.write_parquet(WordVectors([], np.zeros((0, 3), np.float32)), tmp_path / "file")
    assert parquet.read_table(tmp_path / "file").num_rows == 0


def test_without_pyarrow(vectors, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r'pip install "lexrow\[handover\]"'):
        array_files.write_parquet(vectors, tmp_path / "file")
    assert not list(tmp_path.iterdir())


def test_an_interrupted_export_leaves_the_earlier_file(vectors, tmp_path, monkeypatch):
    def interrupted(vectors):
        yield vectors.matrix[:2]
        raise KeyboardInterrupt

    (tmp_path / "file").write_text("earlier")
    monkeypatch.setattr(array_files, "read_blocks", interrupted)
    with pytest.raises(KeyboardInterrupt):
        array_files.write_parquet(vectors, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "earlier"
    assert os.listdir(tmp_path) == ["file"]
