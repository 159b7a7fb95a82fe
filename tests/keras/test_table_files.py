"""A file of rows belongs to one layer; a file that is missing a part is noticed and named."""

from __future__ import annotations

import gc
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.errors import RunError
from app.keras import RowEmbedding
from tests.keras import table_models as models

ROOT = pathlib.Path(__file__).parents[2]
# Keras writes its variables to files in a way that NumPy 2 warns of.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy")


def build(path, rows=5):
    RowEmbedding(rows, 2, table="file", table_file=path, name="words").build()


def test_a_copy_of_a_model_does_not_take_its_file(tmp_path):
    model = models.make_model(models.make_layer("file", tmp_path))
    model.save(tmp_path / "model.keras")
    for copy in (
        lambda: keras.models.clone_model(model),
        lambda: keras.models.load_model(tmp_path / "model.keras"),
    ):
        with pytest.raises(ValueError, match="rows0.bin is in use by another layer, of this"):
            copy()
    np.testing.assert_array_equal(model.layers[0].get_weights()[0], models.WEIGHTS)


@pytest.mark.slow  # a process of its own
def test_a_model_of_another_process_does_not_take_the_file(tmp_path):
    layer = models.make_layer("file", tmp_path)
    program = f"from tests.keras.test_table_files import build; build({layer.table_file!r})"
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True
    )
    assert "words: table_file=" in ended.stderr.splitlines()[-1]
    assert "is in use by another layer, of this process or another" in ended.stderr.splitlines()[-1]
    np.testing.assert_array_equal(layer.get_weights()[0], models.WEIGHTS)


@pytest.mark.slow
def test_a_file_that_was_cut_short_is_not_replaced(tmp_path):
    layer = models.make_layer("file", tmp_path)
    config = layer.get_config()
    del layer
    gc.collect()  # which unlocks the file
    os.truncate(config["table_file"], 65_000)
    with pytest.raises(ValueError, match=r"rows0.bin exists, and may hold .*; name another file"):
        RowEmbedding.from_config(config).build()
    assert os.path.getsize(config["table_file"]) == 65_000


@pytest.mark.parametrize("eager", [True, False])
def test_a_file_that_is_cut_short_while_it_is_in_use(eager, tmp_path):
    layer = models.make_layer("file", tmp_path, name="words")
    call = layer if eager else tf.function(layer.call, autograph=False)
    os.truncate(layer.table_file, 65_000)
    words = r"words: table_file=.* was cut short while it was in use; load a saved model, or make"
    with pytest.raises(RunError if eager else tf.errors.UnknownError, match=words):
        call(tf.constant([1]))


def test_names_that_are_no_new_file(tmp_path):
    with pytest.raises(ValueError, match=r"^words: table_file=.* is no file; give the name of a"):
        build(str(tmp_path))
    with pytest.raises(ValueError, match=r"^words: table_file=5; give the name of a file"):
        build(5)
    with pytest.raises(ValueError, match=r"^words: .*800,000,000,000,000 bytes"):
        build(str(tmp_path / "rows.bin"), 10**14)
    assert not (tmp_path / "rows.bin").exists()
