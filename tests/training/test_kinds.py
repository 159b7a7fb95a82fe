"""Compiled training steps of words on every kind of table, against those on the device."""

import tempfile

import numpy as np
import pytest
import tensorflow as tf

from app.optimizers.adam import lazy_adam
from app.tables.cached import CachedTable, CacheMap
from app.tables.device import DeviceTable
from app.training.step import train_function
from tests.reference import tables
from tests.reference.batches import make_model, make_tokens
from tests.reference.graphs import executed

WORDS, STEPS = 60, 2
# The operations by which a table locates ids, and how many a step makes for a table.
LOCATES = {
    "sharded": ("DynamicPartition", 2),
    "dynamic": ("PyFunc", 1),
    "host": ("ResourceGather", 1),
}
KINDS = {"sharded": tables.dealt, "file": tables.in_file, "dynamic": tables.dynamic}


def trained(kind):
    """All rows and slots after some calls."""
    model, optimizer = make_model("cbow", np.arange(WORDS, 0, -1)), lazy_adam()
    made = {
        name: kind(spec.rows, spec.columns, spec.initial, tf.float32, slots=optimizer.slots)
        for name, spec in model.tables().items()
    }
    function = train_function(model, made, optimizer, seed=4)
    for call in range(4):
        seeds = [[call, step] for step in range(STEPS)]
        tokens = tf.constant(np.stack([make_tokens(range(WORDS), seed=seed) for seed in seeds]))
        function(tokens, tf.constant(call * STEPS, tf.int64), tf.constant(0.05))
    every = tf.range(WORDS)
    return {
        (name, slot): part.gather(every).numpy()
        for name, table in made.items()
        for slot, part in {"": table, **table.slots}.items()
    }


@pytest.fixture(scope="module")
def expected():
    return trained(DeviceTable)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_it_ends_with_the_rows_of_a_table_on_the_device(kind, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = trained(KINDS[kind])
    assert found.keys() == expected.keys()
    for name in found:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=str(name))


def hosted(rows, *options, **slots):
    """A table in host memory of which every row is in the cache."""
    backing = DeviceTable(rows, *options, **slots)
    return CachedTable(backing, "CPU:0", CacheMap(rows, np.arange(rows), 0))


@pytest.mark.parametrize("kind", LOCATES)
def test_a_step_locates_the_ids_of_a_table_once_for_rows_and_slots(kind):
    model, optimizer = make_model("cbow", np.arange(WORDS, 0, -1)), lazy_adam()
    made = {
        name: (KINDS | {"host": hosted})[kind](
            spec.rows, spec.columns, spec.initial, tf.float32, slots=optimizer.slots
        )
        for name, spec in model.tables().items()
    }
    tokens = tf.constant(make_tokens(range(WORDS))[np.newaxis])
    inputs = tokens, tf.constant(0, tf.int64), tf.constant(0.05)
    function = train_function(model, made, optimizer, seed=4).get_concrete_function(*inputs)
    operation, count = LOCATES[kind]
    rows_and_slots = 3 if kind == "host" else 0  # which are gathered by the same operation
    assert executed(function).count(operation) == len(made) * (count + rows_and_slots)
