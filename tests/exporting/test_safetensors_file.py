import json
import os
import tracemalloc

import numpy as np
import pytest

from app.exporting import array_files
from app.types import WordVectors

safetensors_numpy = pytest.importorskip("safetensors.numpy")


def test_the_library_reads_what_we_write(vectors, tmp_path):
    path = tmp_path / "new" / "vectors.safetensors"
    for _ in range(2):  # again over the first
        array_files.write_safetensors(vectors, path)
    found = safetensors_numpy.load_file(path)
    assert set(found) == {"counts", "tokens", "vectors"}
    np.testing.assert_array_equal(found["vectors"], vectors.matrix)
    np.testing.assert_array_equal(found["counts"], vectors.counts)
    assert found["vectors"].dtype == np.float32 and found["counts"].dtype == np.int64
    assert json.loads(found["tokens"].tobytes()) == vectors.tokens
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("tokens", [[], ["a", "a", "with\nline", '"', "\\", "\x00"]])
def test_any_words_without_counts(tmp_path, tokens):
    vectors = WordVectors(tokens, np.full((len(tokens), 3), np.nan, np.float32))
    array_files.write_safetensors(vectors, tmp_path / "file")
    found = safetensors_numpy.load_file(tmp_path / "file")
    assert set(found) == {"vectors", "tokens"}
    assert json.loads(found["tokens"].tobytes()) == tokens
    np.testing.assert_array_equal(found["vectors"], vectors.matrix)


def test_the_matrix_is_not_copied(tmp_path):
    rows = 20_000
    vectors = WordVectors([str(row) for row in range(rows)], np.ones((rows, 300), np.float32))
    tracemalloc.start()
    array_files.write_safetensors(vectors, tmp_path / "file")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < vectors.matrix.nbytes / 2
    tensor = safetensors_numpy.load_file(tmp_path / "file")["vectors"]
    np.testing.assert_array_equal(tensor, vectors.matrix)
