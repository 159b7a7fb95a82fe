"""`StoredRows` starts every kind of table with rows of a file or an array."""

from __future__ import annotations

import os
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.keras import DynamicEmbedding, RowEmbedding, StoredRows
from app.system import machine
from app.tables import arrays
from tests.keras import table_models as models


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
    before, sizes, done = machine.resident_bytes(), [0], threading.Event()

    def watch():
        while not done.wait(0.002):
            sizes.append(machine.resident_bytes() - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    layer.build()
    done.set()
    watcher.join()
    assert layer(np.array([10_000, 10_001]))[:, 0].numpy().tolist() == [1.0, 0.0]
    in_memory = 0 if kind == "file" else rows.nbytes
    assert max(sizes) < in_memory + rows.nbytes / 2


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
