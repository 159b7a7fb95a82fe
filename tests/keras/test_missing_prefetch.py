"""A model with caches that trains without `prefetch_rows` says so in one line, once."""

from __future__ import annotations

import logging

import keras
import pytest

from app.keras import LazyAdam, RowEmbedding, prefetch_rows
from tests.keras import table_models as models

pytestmark = pytest.mark.usefixtures("far_host")


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.WARNING)
    return lambda: [r.message for r in caplog.records if r.name.endswith("table_warnings")]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["host", "file"])
@pytest.mark.parametrize("train", [models.fit, models.fit_in_tape, models.fit_batches])
def test_without_prefetch_rows_one_line_names_it(kind, train, lines, tmp_path):
    model = models.make_model(models.make_layer(kind, tmp_path, hot_rows=9))
    for _ in range(2):
        train(model)
    (line,) = lines()
    assert "embeddings: hot_rows is given, but" in line
    assert "keras.prefetch_rows(dataset, model)" in line


@pytest.mark.slow
def test_one_line_names_all_tables_of_a_model(lines):
    inputs = keras.Input((3,), dtype="int64")
    layers = [RowEmbedding(9, 2, table="host", hot_rows=5, name=name) for name in ("one", "two")]
    model = keras.Model(inputs, layers[0](inputs) + layers[1](inputs))
    model.compile(LazyAdam(0.1), "mse")
    ids = models.IDS[:4, :3] % 9
    model.fit(ids, layers[0](ids), verbose=0)
    (line,) = lines()
    assert line.startswith("one/embeddings, two/embeddings: ")


@pytest.mark.slow
def test_nothing_is_said_with_prefetch_rows_or_without_a_cache(lines, tmp_path):
    model = models.make_model(models.make_layer("host", tmp_path, hot_rows=40))
    models.fit(model, prefetch_rows(models.data(), model))
    models.fit(model)  # the user knows it
    models.fit(models.make_model(models.make_layer("host", tmp_path)))
    cold = models.make_model(models.make_layer("host", tmp_path, hot_rows=40))
    cold.evaluate(models.data(), verbose=0)
    assert lines() == []
