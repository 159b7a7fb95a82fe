"""The memory of the tables that a compiled call reads."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

from app.training.step import compile_call


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
