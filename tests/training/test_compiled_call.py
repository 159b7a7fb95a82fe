"""The memory of the tables that a compiled call reads."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

from app.optimizers.adagrad import rowwise_adagrad
from app.tables.device import DeviceTable
from app.training.step import compile_call, train_function
from tests.reference.batches import MODELS, make_model, make_tokens


@pytest.mark.parametrize("compiled", [compile_call, tf.function])
def test_a_compiled_call_does_not_keep_its_tables(compiled):
    @tf.custom_gradient
    def double(numbers):
        return 2 * numbers, lambda upstream: 2 * upstream

    def call_once():
        variable = tf.Variable([1.0, 2.0])

        def train(factor):
            with tf.GradientTape() as tape:
                value = variable.read_value()
                tape.watch(value)
                total = tf.reduce_sum(double(value))
            return factor * tape.gradient(total, value)

        np.testing.assert_array_equal(compiled(train)(tf.constant(3.0)), [6.0, 6.0])
        return weakref.ref(variable.handle)

    handle = call_once()
    gc.collect()
    # tf.function is here to show that TensorFlow still keeps graphs with custom gradients.
    assert (handle() is None) == (compiled is compile_call)


@pytest.mark.parametrize("name", MODELS)
def test_a_train_function_does_not_keep_its_tables(name):
    def train_once():
        optimizer = rowwise_adagrad()
        tables = {
            table: DeviceTable(30, 6, tf.ones, slots=optimizer.slots)
            for table in ("input", "output")
        }
        train = train_function(make_model(name, np.ones(30)), tables, optimizer, seed=1)
        data_S = tf.constant(make_tokens(range(1, 25))[np.newaxis])
        loss, _ = train(data_S, tf.constant(0, tf.int64), tf.constant(0.1))
        assert loss > 0
        variables = [table.values for table in tables.values()]
        return [weakref.ref(variable.handle) for variable in variables]

    handles = train_once()
    gc.collect()
    assert [handle() for handle in handles] == [None, None]
