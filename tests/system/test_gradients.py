"""The memory of graphs that have custom gradients."""

import gc
import pathlib
import weakref

import numpy as np
import pytest
import tensorflow as tf

from app.system.gradients import custom_gradient

APP = pathlib.Path(__file__).parents[2] / "app"


def test_no_gradient_is_registered_for_good():
    uses = [path for path in APP.rglob("*.py") if "tf.custom_gradient" in path.read_text("utf-8")]
    assert uses == [APP / "system/gradients.py"]


def doubled(decorator):
    """A function whose gradient is tripled, to tell it from the derivative."""

    @decorator
    def double(numbers):
        return 2 * numbers, lambda upstream: 3 * upstream

    return double


@pytest.mark.slow
@pytest.mark.parametrize("decorator", [custom_gradient, tf.custom_gradient])
def test_a_deleted_function_does_not_keep_its_variables(decorator):
    def call_once():
        variable = tf.Variable([1.0, 2.0])

        @tf.function(autograph=False)
        def train(factor):
            with tf.GradientTape() as tape:
                value = variable.read_value()
                tape.watch(value)
                total = tf.reduce_sum(doubled(decorator)(value))
            return factor * tape.gradient(total, value)

        np.testing.assert_array_equal(train(tf.constant(5.0)), [15.0, 15.0])
        return weakref.ref(variable.handle)

    handle = call_once()
    gc.collect()
    # tf.custom_gradient is here to show that TensorFlow still keeps such graphs.
    assert (handle() is None) == (decorator is custom_gradient)


@pytest.mark.slow
def test_a_gradient_can_be_taken_after_the_function_is_deleted():
    double = tf.function(doubled(custom_gradient), autograph=False)
    concrete = double.get_concrete_function(tf.TensorSpec([2]))
    del double
    gc.collect()
    value = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:  # traces the gradient
        tape.watch(value)
        total = tf.reduce_sum(concrete(value))
    np.testing.assert_array_equal(tape.gradient(total, value), [3.0, 3.0])


def test_gradients_in_a_loop_and_without_a_graph():
    double = doubled(custom_gradient)

    def power(value):
        with tf.GradientTape() as tape:
            tape.watch(value)
            result = tf.while_loop(
                lambda turn, _: turn < 4, lambda turn, x: (turn + 1, double(x)), [0, value]
            )[1]
        return result, tape.gradient(result, value)

    for call in (power, tf.function(power, autograph=False)):
        result, gradient = call(tf.constant(1.0))
        assert (float(result), float(gradient)) == (16.0, 81.0)
