"""Compiled training steps of words on every kind of table, against those on the device."""

from __future__ import annotations

import tempfile

import numpy as np
import pytest
import tensorflow as tf

from app.optimizers.adam import lazy_adam
from app.optimizers.row_updates import slots
from app.tables.device import DeviceTable
from app.training.step import train_function
from tests.reference import tables
from tests.reference.batches import make_model, make_tokens

WORDS, STEPS = 60, 2
KINDS = {"sharded": tables.dealt, "file": tables.in_file, "dynamic": tables.dynamic}


def trained(kind):
    """All rows and slots after some calls."""
    model, optimizer, made = make_model("cbow", np.arange(WORDS, 0, -1)), lazy_adam(), {}
    for name, spec in model.tables().items():
        made[name] = kind(spec.rows, spec.columns, spec.initial, tf.float32)
        slots(optimizer, made[name])
    function = train_function(model, made, optimizer, seed=4)
    for call in range(4):
        seeds = [[call, step] for step in range(STEPS)]
        tokens = tf.constant(np.stack([make_tokens(range(WORDS), seed=seed) for seed in seeds]))
        function(tokens, tf.constant(call * STEPS, tf.int64), tf.constant(0.05))
    every = tf.range(WORDS)
    return {
        (name, slot): part.gather(every).numpy()
        for name, table in made.items()
        for slot, part in {"": table, **slots(optimizer, table)}.items()
    }


@pytest.fixture(scope="module")
def expected():
    return trained(lambda rows, columns, initial, dtype: DeviceTable(rows, columns, initial))


@pytest.mark.parametrize("kind", KINDS)
def test_it_ends_with_the_rows_of_a_table_on_the_device(kind, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = trained(KINDS[kind])
    assert found.keys() == expected.keys()
    for name in found:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=str(name))
