"""Weights files and checkpoints have rows of tables as Keras writes them, and copy none."""

import itertools
import zipfile

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.saving import saving_lib

from app.keras import (
    DynamicEmbedding,
    LazyAdam,
    RowEmbedding,
    load_model,
    prefetch_rows,
    save_model,
)
from app.keras import saving as module
from app.keras.tables.table_variable import TableVariable
from app.tables import arrays
from tests.keras import table_models as models

KINDS = {
    "host": {},
    "file": {},
    "sharded": {},
    "hot": {"hot_rows": 20},
    "half": {"dtype": "bfloat16"},
}
every_kind = pytest.mark.parametrize("kind", [*KINDS, "dynamic"])


def make_model(kind, folder):
    """Return a trained model; that of an evicting cache has rows in the cache and below it."""
    if kind == "dynamic":
        layer = DynamicEmbedding(models.COLUMNS, capacity=40, embeddings_initializer="uniform")
    else:
        table = kind if kind in models.KINDS else "file"
        layer = models.make_layer(table, folder, **KINDS[kind])
    model = models.make_model(layer, LazyAdam(0.1, correct_skipped=True))
    models.fit(model, prefetch_rows(models.data(), model, steps=1))
    return model


def datasets(path):
    """Return the bytes, shape, type and marks of every array in a weights file, by name."""
    found = {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset):
            marks = dict(item.attrs)
            found[name] = np.asarray(item).tobytes(), item.shape, item.dtype, item.chunks, marks

    with h5py.File(path) as file:
        file.visititems(visit)
    return found


@pytest.fixture
def small_parts(monkeypatch):
    """Parts of a few rows, and no other way to read all rows of a table."""
    monkeypatch.setattr(arrays, "_PART_BYTES", 200)


def refuse_copies(monkeypatch):
    def refuse(self):
        raise AssertionError(f"{self.path} is copied into memory as a whole")

    monkeypatch.setattr(TableVariable, "numpy", refuse)


@pytest.mark.slow
@every_kind
def test_a_weights_file_is_written_and_read_by_part_as_keras_would_write_it(
    kind, tmp_path, monkeypatch, small_parts
):
    model = make_model(kind, tmp_path)
    expected = models.state(model)
    with monkeypatch.context() as patch:
        patch.setattr(module, "H5IOStore", type("Another", (), {}))  # so Keras writes the arrays
        model.save_weights(tmp_path / "keras.weights.h5")
    other = make_model(kind, tmp_path)
    models.fit(other)
    with monkeypatch.context() as patch:
        refuse_copies(patch)
        model.save_weights(tmp_path / "ours.weights.h5")
        other.load_weights(tmp_path / "keras.weights.h5")
    assert models.state(other) == expected
    written = datasets(tmp_path / "ours.weights.h5")
    assert written == datasets(tmp_path / "keras.weights.h5")
    assert len(written) > 8  # among them the slots
    models.fit(other)
    assert models.state(other) != expected
    other.load_weights(tmp_path / "ours.weights.h5")
    assert models.state(other) == expected


def test_a_table_without_rows_in_use(tmp_path):
    layer = DynamicEmbedding(3, capacity=5)
    model = keras.Sequential([keras.Input((2,), dtype="int64"), layer])
    model.save_weights(tmp_path / "none.weights.h5")
    model.load_weights(tmp_path / "none.weights.h5")
    assert layer.embeddings.numpy().shape == (0, 3)


def test_stores_that_are_no_file_of_hdf5_have_arrays(tmp_path):
    layer, store = models.make_layer("file", tmp_path), {}
    layer.save_own_variables(store)
    np.testing.assert_array_equal(np.asarray(store["0"]), models.WEIGHTS)
    layer.set_weights([models.WEIGHTS + 1])
    layer.load_own_variables({"0": models.WEIGHTS})
    np.testing.assert_array_equal(layer.get_weights()[0], models.WEIGHTS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["host", "file", "hot", "half"])
def test_a_checkpoint_is_written_without_a_copy(kind, tmp_path, monkeypatch):
    model, other = make_model(kind, tmp_path), make_model(kind, tmp_path)
    models.fit(other)
    expected = models.state(model)
    with monkeypatch.context() as patch:
        refuse_copies(patch)
        # The slots alone: their cached rows are written back before they are read, too.
        tf.train.Checkpoint(model.optimizer).write(str(tmp_path / "slots"))
        tf.train.Checkpoint(model).write(str(tmp_path / "all"))
    for name, checkpoint in (
        ("slots", tf.train.Checkpoint(other.optimizer)),
        ("all", tf.train.Checkpoint(other)),
    ):
        checkpoint.read(str(tmp_path / name)).assert_consumed()
        parts = len(other.variables)
        assert models.state(other)[parts:] == expected[parts:]
    assert models.state(other) == expected
    for each in (model, other):  # the tensors of the checkpoint do not share the rows any more
        models.fit(each)
    assert models.state(model) == models.state(other) != expected


@pytest.mark.parametrize("columns", [6, 16])  # 16 columns are 64 bytes
def test_a_checkpoint_of_a_dynamic_table_has_the_rows_in_use(columns, tmp_path):
    layer, other = (DynamicEmbedding(columns, capacity=9) for _ in range(2))
    for each, rows in ((layer, 5), (other, 0)):
        each.build()
        each.embeddings.table.gather(tf.range(rows, dtype=tf.int64))
    tf.train.Checkpoint(layer).write(str(tmp_path / "rows"))
    assert tf.train.load_variable(
        str(tmp_path / "rows"), "embeddings/.ATTRIBUTES/VARIABLE_VALUE"
    ).shape == (5, columns)
    tf.train.Checkpoint(other).read(str(tmp_path / "rows")).assert_consumed()
    np.testing.assert_array_equal(other.get_weights()[0], layer.get_weights()[0])


def test_a_table_that_the_disk_cannot_take_is_named_before_a_row_is_written(limited, tmp_path):
    model = big_model()
    limited(100_000)
    with pytest.raises(OSError, match=r"words/embeddings: File too large: .* kB are needed in"):
        model.save_weights(tmp_path / "all.weights.h5")
    assert (tmp_path / "all.weights.h5").stat().st_size < 50_000


def test_a_file_that_keras_builds_in_memory_has_to_fit_there(tmp_path, monkeypatch):
    model = big_model()
    monkeypatch.setattr(saving_lib, "is_memory_sufficient", lambda model: True)
    model.save(tmp_path / "model.keras")
    monkeypatch.setattr(module, "free_bytes", lambda: 100_000)
    with pytest.raises(OSError, match=r"words/embeddings: Keras builds this file in memory, where"):
        model.save(tmp_path / "model.keras")


@pytest.mark.parametrize("name", ["model.keras", "model.weights.h5"])
def test_save_model_replaces_a_file_by_a_whole_one_only(name, limited, tmp_path):
    model, other = big_model(), big_model()
    other.set_weights([model.get_weights()[0] + 1])
    save_model(model, tmp_path / name)
    before = (tmp_path / name).read_bytes()
    limited(200_000)
    with pytest.raises(OSError, match=rf"cannot save .*{name}: .* an earlier file of this name is"):
        save_model(other, tmp_path / name)
    assert (tmp_path / name).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_save_model_writes_files_as_keras_does(tmp_path):
    model = make_model("file", tmp_path)
    other = make_model("file", tmp_path)
    models.fit(other)
    save_model(model, tmp_path / "ours.weights.h5")
    other.load_weights(tmp_path / "ours.weights.h5")
    assert models.state(other) == models.state(model)
    model = big_model()
    save_model(model, tmp_path / "ours.keras")
    model.save(tmp_path / "keras.keras")
    names = [zipfile.ZipFile(tmp_path / f"{by}.keras").namelist() for by in ("ours", "keras")]
    assert sorted(names[0]) == sorted(names[1])
    loaded = keras.models.load_model(tmp_path / "ours.keras")
    np.testing.assert_array_equal(loaded.get_weights()[0], model.get_weights()[0])


def test_a_model_that_is_not_built_is_saved_as_by_keras(tmp_path):
    model = keras.Sequential([RowEmbedding(50, 8, table="host", name="words")])
    with pytest.warns(UserWarning, match="has not yet been built"):
        save_model(model, tmp_path / "model.keras")
    assert keras.models.load_model(tmp_path / "model.keras").layers[0].table == "host"
    with pytest.raises(ValueError, match="has not yet been built"):
        save_model(model, tmp_path / "model.weights.h5")


def test_save_model_refuses_other_names(tmp_path):
    with pytest.raises(ValueError, match=r"filepath=model.h5: give a name that ends in .keras or"):
        save_model(big_model(), "model.h5")
    for use in (load_model, lambda path: save_model(None, path)):
        with pytest.raises(TypeError, match="^filepath is NoneType; give the path of a file"):
            use(None)
    (tmp_path / "model.keras").mkdir()
    with pytest.raises(ValueError, match="is a folder or a device; give the name of a file"):
        save_model(big_model(), tmp_path / "model.keras")


def big_model():
    """Return a model with a table of 160 kB."""
    layer = RowEmbedding(5_000, 8, table="host", name="words")
    return keras.Sequential([keras.Input((2,), dtype="int64"), layer])


slow = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("host", "sharded", "int64")]


class _Stop(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1:
            raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["file", "string", *slow])
def test_a_stopped_fit_ends_as_if_it_had_never_stopped(kind, tmp_path):
    def make():
        if kind in models.KINDS:
            return models.make_model(models.make_layer(kind, tmp_path))
        layer = DynamicEmbedding(models.COLUMNS, kind, capacity=40, embeddings_initializer="zeros")
        return models.make_model(layer, dtype=kind)

    def fit(model, *callbacks):
        batches = models.data(models.strings() if kind == "string" else models.IDS)
        model.fit(batches, epochs=4, shuffle=False, verbose=0, callbacks=list(callbacks))
        return models.state(model)

    def backup():
        return keras.callbacks.BackupAndRestore(tmp_path / "backup")

    expected = fit(make())
    with pytest.raises(KeyboardInterrupt):
        fit(make(), backup(), _Stop())
    assert fit(make(), backup()) == expected


DYNAMIC = {"output_dim": models.COLUMNS, "key_dtype": "int64", "capacity": 40}


def make_other(kind, folder):
    if kind in models.KINDS:
        return models.make_model(models.make_layer(kind, folder, name="words"))
    layer = DynamicEmbedding(**DYNAMIC | {"key_dtype": kind}, name="words")
    return models.make_model(layer, dtype=kind)


def train(model):
    strings = getattr(model.layers[0], "key_dtype", None) == "string"
    models.fit(model, models.data(models.strings() if strings else models.IDS))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("saved", "other"), list(itertools.permutations(["host", "int64", "string"], 2))
)
def test_weights_of_another_kind(saved, other, tmp_path):
    saved, other = make_other(saved, tmp_path), make_other(other, tmp_path)
    train(saved)
    train(other)
    before = other.layers[0].embeddings.numpy().tobytes()
    saved.save_weights(tmp_path / "all.weights.h5")
    with pytest.raises(
        ValueError, match="words.*(have no keys|holds keys with kind|expected 1 variables)"
    ):
        other.load_weights(tmp_path / "all.weights.h5")
    assert other.layers[0].embeddings.numpy().tobytes() == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "change", [{"capacity": 50}, {"capacity": 30}, {"min_count": 2}, {"output_dim": 5}]
)
def test_keys_of_a_layer_with_other_arguments(change, tmp_path):
    saved = make_other("int64", tmp_path)
    other = models.make_model(DynamicEmbedding(**DYNAMIC | change, name="words"))
    train(saved)
    saved.save_weights(tmp_path / "all.weights.h5")
    words = "the saved keys .* holds keys with (capacity 40|.* 1: False), where .*; make the layer"
    if "output_dim" in change:
        words = "the saved rows have 6 columns, where the layer has 5; make the layer with"
    with pytest.raises(ValueError, match=f"words: {words}"):
        other.load_weights(tmp_path / "all.weights.h5")
    assert len(other.layers[0].key_map) == 0
    if "output_dim" not in change:
        tf.train.Checkpoint(saved).write(str(tmp_path / "checkpoint"))
        with pytest.raises(ValueError, match=f"words: {words}"):
            tf.train.Checkpoint(other).read(str(tmp_path / "checkpoint"))
        assert len(other.layers[0].key_map) == 0


@pytest.mark.parametrize("kind", models.KINDS)
def test_rows_of_a_table_of_another_size(kind, tmp_path):
    saved = make_other(kind, tmp_path)
    file = {"table_file": str(tmp_path / "other.bin")} if kind == "file" else {}
    layer = RowEmbedding(models.ROWS - 1, models.COLUMNS, table=kind, name="words", **file)
    other = models.make_model(layer)
    before = layer.get_weights()[0]
    saved.save_weights(tmp_path / "all.weights.h5")
    tf.train.Checkpoint(saved).write(str(tmp_path / "checkpoint"))
    words = r"words/embeddings has shape \(49, 6\), not \(50, 6\); use a layer of the size"
    with pytest.raises(ValueError, match=words):
        other.load_weights(tmp_path / "all.weights.h5")
    with pytest.raises(ValueError, match=words):
        tf.train.Checkpoint(other).read(str(tmp_path / "checkpoint"))
    np.testing.assert_array_equal(layer.get_weights()[0], before)
