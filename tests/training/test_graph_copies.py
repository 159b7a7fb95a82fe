from __future__ import annotations

import gc

import numpy as np
import tensorflow as tf

from app.training.graph_copies import copy_function


@tf.function(autograph=False, jit_compile=True)
def squared(x):
    return x * x


def test_copies_have_the_results_of_calls_in_order():
    """One after another on one variable, with XLA, Python, a loop, and an argument of no use."""
    total = tf.Variable(1.0)

    @tf.function(autograph=False)
    def step(x, unused):
        doubled = tf.numpy_function(lambda value: 2 * value, [x], tf.float32)
        rows = tf.while_loop(lambda n, _: n < 3, lambda n, sum_: (n + 1, sum_ + x), (0, 0.0))[1]
        before = total.read_value()
        total.assign(before * 2 + squared(x) + doubled + rows)
        return before, x

    @tf.function(autograph=False)
    def train(values):
        parts = tf.unstack(values)
        traced = step.get_concrete_function(parts[0], tf.constant(0))
        calls = [[part, tf.constant(index)] for index, part in enumerate(parts)]
        return [before for before, _ in copy_function(traced, calls)]

    values, expected = np.array([1, 2, 3], np.float32), [1.0]
    for value in values:
        expected.append(expected[-1] * 2 + value**2 + 5 * value)
    found = train(tf.constant(values))
    np.testing.assert_allclose(found, expected[:-1])
    gc.collect()  # the Python function is still there
    np.testing.assert_allclose(train(tf.constant(values))[0], expected[-1])


def test_the_functions_that_copies_call_keep_their_graphs():
    @tf.function(autograph=False)
    def step(x):
        return squared(x)

    @tf.function(autograph=False)
    def train(x):
        return copy_function(step.get_concrete_function(x), [[x], [x + 1]])

    graph = train.get_concrete_function(tf.constant(2.0)).graph
    calls = [op for op in graph.get_operations() if "PartitionedCall" in op.type]
    assert len(calls) == 2
    for call in calls:
        assert graph._get_function(call.get_attr("f").name).graph.outputs
    np.testing.assert_allclose(train(tf.constant(2.0)), [[4.0], [9.0]])
