"""`load_vectors` gives the rows of words their vectors from a file, and leaves the others."""

import gzip
import os

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.exporting import fasttext_bin, word2vec
from app.keras import DynamicEmbedding, RowEmbedding, RowEmbeddingReduce, StoredRows, load_vectors
from app.keras.layers import word_vectors
from app.system import machine
from app.tables import arrays
from app.types import WordVectors
from tests.keras import table_models as models
from tests.processes import peak_memory

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
    with pytest.raises(TypeError, match="path is NoneType; give the path"):
        load_vectors(layer, None, WORDS)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ValueError, match=r"words: .*vectors.bin.*; copy or download the file"):
        load_vectors(layer, path, WORDS)
    with pytest.raises(ValueError, match="users is a DynamicEmbedding; give a RowEmbedding"):
        load_vectors(DynamicEmbedding(6, "string", name="users"), path, WORDS)


# `StoredRows` starts every kind of table with rows of a file or an array.


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """The name of a file that is read in many parts, the last of them shorter."""
    monkeypatch.setattr(arrays, "_PART_BYTES", 4 * models.COLUMNS * 7)
    path = tmp_path / "vectors.npy"
    np.save(path, models.WEIGHTS)
    return path


def make_layer(kind, folder, rows, **options):
    if kind == "file":
        options["table_file"] = str(folder / "rows.bin")
    return RowEmbedding(models.ROWS, models.COLUMNS, StoredRows(rows), table=kind, **options)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["device", *models.KINDS])
def test_tables_start_with_the_rows_of_a_file(kind, stored, tmp_path):
    model = models.make_model(make_layer(kind, tmp_path, str(stored)))
    np.testing.assert_array_equal(model.layers[0].get_weights()[0], models.WEIGHTS)
    device = models.make_model(models.make_layer("device", tmp_path))
    assert models.fit(model) == models.fit(device)


@pytest.mark.parametrize("kind", ["device", *models.KINDS])
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_arrays_are_converted_part_by_part(kind, dtype, stored, tmp_path):
    numbers = (models.WEIGHTS * 100).astype(np.float64)
    layer = make_layer(kind, tmp_path, numbers, dtype="float32" if dtype == "float64" else dtype)
    layer.build()
    expected = tf.cast(tf.cast(numbers, tf.float32), layer.variable_dtype)
    np.testing.assert_array_equal(layer.get_weights()[0], expected)


def test_a_map_of_a_file_and_a_cache(stored, tmp_path):
    rows = np.load(stored, mmap_mode="r")
    layer = make_layer("host", tmp_path, rows, hot_rows=5)
    np.testing.assert_array_equal(layer(models.IDS), models.WEIGHTS[models.IDS])


def test_a_layer_that_is_built_while_a_model_is_traced(stored):
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.embedding = RowEmbedding(models.ROWS, models.COLUMNS, StoredRows(stored))

        def call(self, inputs):
            return self.embedding(inputs)

    model = Model()
    keras.Model(inputs := keras.Input((3,), dtype="int32"), model(inputs))
    np.testing.assert_array_equal(model.get_weights()[0], models.WEIGHTS)


def test_it_serves_the_layer_of_keras(stored):
    layer = keras.layers.Embedding(models.ROWS, models.COLUMNS, StoredRows(stored))
    np.testing.assert_array_equal(layer(models.IDS), models.WEIGHTS[models.IDS])


@pytest.mark.slow
@pytest.mark.parametrize("change", ["nothing", "removed", "other shape", "an array"])
def test_a_saved_model_has_the_trained_rows(change, stored, tmp_path, caplog):
    rows = models.WEIGHTS if change == "an array" else stored
    model = models.make_model(make_layer("file", tmp_path, rows))
    models.fit(model)
    model.save(tmp_path / "model.keras")
    expected = models.state(model)
    os.rename(tmp_path / "rows.bin", tmp_path / "old.bin")
    if change == "removed":
        stored.unlink()
    if change == "other shape":
        np.save(stored, models.WEIGHTS[:3])
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert models.state(loaded) == expected
    is_there = isinstance(loaded.layers[0].embeddings_initializer, StoredRows)
    assert is_there == (change == "nothing")
    assert ("initial rows are zeros until weights are loaded" in caplog.text) != is_there


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["device", "host", "file"])
def test_there_is_no_second_copy(kind, tmp_path):
    rows = np.lib.format.open_memmap(tmp_path / "v.npy", "w+", np.float32, (500_000, 128))
    rows[::10_000] = 1.0
    options = {"table_file": str(tmp_path / "rows.bin")} if kind == "file" else {}
    layer = RowEmbedding(*rows.shape, StoredRows(tmp_path / "v.npy"), table=kind, **options)
    before = machine.resident_bytes()
    with peak_memory() as peak:
        layer.build()
    assert layer(np.array([10_000, 10_001]))[:, 0].numpy().tolist() == [1.0, 0.0]
    in_memory = 0 if kind == "file" else rows.nbytes
    assert peak[0] - before < in_memory + rows.nbytes / 2


def test_bad_rows(tmp_path, stored):
    layer = RowEmbedding(models.ROWS + 1, models.COLUMNS, StoredRows(stored), table="host")
    with pytest.raises(ValueError, match=r"vectors.npy'\) has rows of shape \(50, 6\), and .* 6\)"):
        layer.build()
    with pytest.raises(ValueError, match=r"none.npy: No such file .*; give a file that numpy.save"):
        StoredRows(tmp_path / "none.npy")
    (tmp_path / "notes.txt").write_text("no rows")
    with pytest.raises(ValueError, match=r"notes.txt: .*; give a file that numpy.save wrote"):
        StoredRows(str(tmp_path / "notes.txt"))
    for bad in (np.zeros(3), np.zeros((2, 2), complex), np.array([["a"]])):
        with pytest.raises(ValueError, match="StoredRows: an array of shape .* give the rows of"):
            StoredRows(bad)
    initializer = StoredRows(stored)
    np.save(stored, models.WEIGHTS[:3])
    with pytest.raises(ValueError, match="vectors.npy was replaced while it was read"):
        initializer((models.ROWS, models.COLUMNS))
    with pytest.raises(ValueError, match="StoredRows makes whole tables"):
        DynamicEmbedding(models.COLUMNS, embeddings_initializer=initializer)
