"""`load_vectors` gives the rows of words their vectors from a file, and leaves the others."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from app.exporting import fasttext_bin, word2vec
from app.keras import DynamicEmbedding, RowEmbedding, RowEmbeddingReduce, load_vectors
from app.keras.layers import word_vectors
from app.types import WordVectors
from tests.keras import table_models as models

WORDS = [f"word{i}" for i in range(models.ROWS - 5)]
FILE_WORDS = [*WORDS[30:3:-2], "unknown", "łódź"]
VECTORS = np.random.default_rng(5).normal(size=(len(FILE_WORDS), models.COLUMNS)).astype("f4")


WRITERS = {
    "text": word2vec.write,
    "binary": lambda vectors, path: word2vec.write(vectors, path, binary=True),
    "fasttext": fasttext_bin.write,
}


@pytest.fixture(params=WRITERS)
def path(request, tmp_path, monkeypatch):
    monkeypatch.setattr(word_vectors, "_PART_BYTES", 5 * 4 * models.COLUMNS)
    path = tmp_path / "vectors.bin"
    WRITERS[request.param](WordVectors(FILE_WORDS, VECTORS), path)
    return path


def expected(before):
    rows = before.copy()
    for word, vector in zip(FILE_WORDS[:-2], VECTORS, strict=False):
        rows[WORDS.index(word)] = vector
    return rows


@pytest.mark.parametrize("kind", ["device", *models.KINDS])
def test_rows_get_the_vectors_of_their_words(kind, path, tmp_path):
    layer = models.make_layer(kind, tmp_path)
    assert load_vectors(layer, path, WORDS) == len(FILE_WORDS) - 2
    np.testing.assert_array_equal(layer.get_weights()[0], expected(models.WEIGHTS))


def test_a_layer_that_is_not_built_and_text_without_a_header(tmp_path):
    layer = RowEmbeddingReduce(4, 2, "ones", table="host", hot_rows=2)
    with gzip.open(tmp_path / "glove.txt.gz", "wt") as file:
        file.write("the 1 2\nof 3 4\nthe 5 6\n")
    vocabulary = ["", b"of", "[UNK]", "the"]
    assert load_vectors(layer, tmp_path / "glove.txt.gz", vocabulary) == 2
    np.testing.assert_array_equal(layer.get_weights()[0], [[1, 1], [3, 4], [1, 1], [1, 2]])
    assert load_vectors(layer, tmp_path / "glove.txt.gz", []) == 0


def test_half_precision(path):
    layer = RowEmbedding(models.ROWS, models.COLUMNS, "zeros", dtype="float16")
    load_vectors(layer, path, WORDS)
    zeros = np.zeros_like(models.WEIGHTS)
    np.testing.assert_array_equal(layer.get_weights()[0], expected(zeros).astype(np.float16))


@pytest.mark.slow
def test_bad_vectors_and_vocabularies(path, tmp_path):
    layer = RowEmbedding(models.ROWS, models.COLUMNS + 1, name="words")
    with pytest.raises(ValueError, match="words: .*vectors of 6 numbers, .* give .* output_dim=6"):
        load_vectors(layer, path, WORDS)
    layer = RowEmbedding(models.ROWS, models.COLUMNS, "zeros", name="words")
    with pytest.raises(ValueError, match="words: the vocabulary has 90 words, and the table 50"):
        load_vectors(layer, path, WORDS * 2)
    with pytest.raises(ValueError, match="words: the vocabulary has 'a' as id 0 and as id 2; give"):
        load_vectors(layer, path, ["a", "b", b"a"])
    with pytest.raises(ValueError, match="words: vocabulary='the' is one text; give a list of"):
        load_vectors(layer, path, "the")
    with pytest.raises(ValueError, match="words: .*none.vec: No such file"):
        load_vectors(layer, tmp_path / "none.vec", WORDS)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ValueError, match=r"words: .*vectors.bin.*; copy or download the file"):
        load_vectors(layer, path, WORDS)
    with pytest.raises(ValueError, match="users is a DynamicEmbedding; give a RowEmbedding"):
        load_vectors(DynamicEmbedding(6, "string", name="users"), path, WORDS)
