"""What every optimizer must do on every table; a new rule or table is one new line here."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import tensorflow as tf

from app.optimizers import rows as writer
from app.optimizers import rules
from app.tables.device import DeviceTable
from tests.reference import optimizers as reference

SIZE, DIM, RATE, INITIAL = 12, 5, 0.1, 0.01

OPTIMIZERS = {
    "sgd": (rules.sgd(), reference.sgd),
    "adagrad": (rules.adagrad(INITIAL), reference.adagrad),
    "rowwise_adagrad": (rules.rowwise_adagrad(INITIAL), reference.rowwise_adagrad),
}
TABLES = {"device": DeviceTable}
# TensorFlow's own, over the whole table.
DENSE = {
    "sgd": lambda values, _, gradient: tf.raw_ops.ResourceApplyGradientDescent(
        var=values.handle, alpha=RATE, delta=gradient
    ),
    "adagrad": lambda values, accumulator, gradient: tf.raw_ops.ResourceApplyAdagrad(
        var=values.handle, accum=accumulator.handle, lr=RATE, grad=gradient
    ),
}


def make_stream(steps=15, size=SIZE, seed=0):
    """Steps of ids with repeats and a gradient for each; row 0 is never among them."""
    random = np.random.default_rng(seed)
    for _ in range(steps):
        ids = random.integers(1, size, size=random.integers(3, 10)).astype(np.int32)
        scale = 10.0 ** random.integers(-3, 2)
        yield ids, (scale * random.normal(size=(len(ids), DIM))).astype(np.float32)


def merged(ids, gradients):
    """Unique ids and the sum of their gradients."""
    ids_U, positions = np.unique(ids, return_inverse=True)
    gradients_UD = np.zeros((len(ids_U), DIM), np.float32)
    np.add.at(gradients_UD, positions, gradients)
    return ids_U, gradients_UD


def make_table(kind, seed=1):
    values = np.random.default_rng(seed).normal(size=(SIZE, DIM)).astype(np.float32)
    return TABLES[kind](SIZE, DIM, lambda shape: tf.constant(values)), values


def trainer(optimizer, table):
    """A compiled update of the table, as a training step makes it."""
    writer.slots(optimizer, table)

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.int32),
            tf.TensorSpec([None, DIM], tf.float32),
        ]
    )
    def update(ids_U, gradients_UD):
        rate = tf.constant(RATE)
        writer.update(optimizer, table, ids_U, table.gather(ids_U), gradients_UD, rate)

    return update


def contents(table):
    return table.gather(tf.range(SIZE)).numpy()


@pytest.fixture(params=OPTIMIZERS)
def name(request):
    return request.param


@pytest.fixture(params=TABLES)
def kind(request):
    return request.param


def test_every_rule_is_in_this_suite():
    functions = inspect.getmembers(rules, inspect.isfunction)
    assert {name for name, _ in functions if not name.startswith("_")} == OPTIMIZERS.keys()


def test_the_stream_has_repeats_and_rows_that_idle_and_come_back():
    stream = [set(ids.tolist()) for ids, _ in make_stream()]
    assert any(len(ids) < len(given) for ids, (given, _) in zip(stream, make_stream(), strict=True))
    touched = [[row in ids for ids in stream] for row in range(SIZE)]
    assert any("101" in "".join(str(int(here)) for here in steps) for steps in touched)


def test_it_equals_the_reference(name, kind):
    optimizer, rule = OPTIMIZERS[name]
    table, values = make_table(kind)
    update = trainer(optimizer, table)
    for ids, gradients in make_stream():
        update(*merged(ids, gradients))

    expected = values.astype(np.float64)
    columns = [slot.columns or DIM for slot in optimizer.slots.values()]
    accumulators = np.full((SIZE, *(columns or [1])), INITIAL)
    reference.train(rule, expected, accumulators, make_stream(), RATE)
    np.testing.assert_allclose(contents(table), expected, rtol=1e-5, atol=1e-6)
    for slot in writer.slots(optimizer, table).values():
        np.testing.assert_allclose(contents(slot), accumulators, rtol=1e-5)


@pytest.mark.parametrize("name", DENSE)
def test_it_equals_tensorflows_dense_optimizer(name, kind):
    optimizer, _ = OPTIMIZERS[name]
    table, values = make_table(kind)
    update = trainer(optimizer, table)
    dense, accumulator = tf.Variable(values), tf.Variable(tf.fill(values.shape, INITIAL))
    for ids, gradients in make_stream():
        update(*merged(ids, gradients))
        gradient = np.zeros((SIZE, DIM), np.float32)
        np.add.at(gradient, ids, gradients)
        DENSE[name](dense, accumulator, gradient)
        np.testing.assert_allclose(contents(table), dense.numpy(), rtol=1e-5, atol=1e-6)


def test_idle_rows_and_their_state_stay_as_they_are_bit_for_bit(name, kind):
    optimizer, _ = OPTIMIZERS[name]
    table, _ = make_table(kind)
    update = trainer(optimizer, table)
    parts = [table, *writer.slots(optimizer, table).values()]
    for ids, gradients in make_stream():
        before = [contents(part) for part in parts]
        update(*merged(ids, gradients))
        idle = np.setdiff1d(np.arange(SIZE), ids)
        for part, old in zip(parts, before, strict=True):
            assert contents(part)[idle].tobytes() == old[idle].tobytes()


def test_no_gradient_is_no_change(name, kind):
    optimizer, _ = OPTIMIZERS[name]
    table, values = make_table(kind)
    trainer(optimizer, table)(np.arange(4, dtype=np.int32), np.zeros((4, DIM), np.float32))
    assert contents(table).tobytes() == values.tobytes()


def test_slots_are_made_once_beside_the_table(name, kind):
    optimizer, _ = OPTIMIZERS[name]
    table, _ = make_table(kind)
    tables = writer.slots(optimizer, table)
    assert tables.keys() == optimizer.slots.keys()
    again = writer.slots(optimizer, table)
    assert all(again[slot] is tables[slot] for slot in tables)


def test_state_is_as_wide_as_promised():
    widths = {
        name: [slot.columns for slot in writer.slots(optimizer, make_table("device")[0]).values()]
        for name, (optimizer, _) in OPTIMIZERS.items()
    }
    assert widths == {"sgd": [], "adagrad": [DIM], "rowwise_adagrad": [1]}
