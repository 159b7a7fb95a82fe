"""Python functions live as long as a graph or a dataset that calls them, and no longer."""

import gc
import pathlib
import weakref

import numpy as np
import pytest
import tensorflow as tf

from app.errors import DamagedError, RunError
from app.system.python_functions import (
    call_python,
    custom_gradient,
    from_generator,
    numpy_function,
    table_errors,
)

ONE, SPEC = tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.int64)


class Adder:
    """What a function refers to."""

    def add(self, number):
        return number + np.int64(1)

    def count(self, start=0):
        yield from (self.add(start + number) for number in range(3))


def compiled(function):
    return tf.function(function, autograph=False)


def in_a_graph(adder):
    return compiled(lambda x: numpy_function(adder.add, [x], tf.int64)).get_concrete_function(ONE)


def in_a_cycle(adder):
    adder.function = compiled(lambda x: numpy_function(adder.add, [x], tf.int64))
    return adder.function


def in_a_branch(adder):
    return compiled(
        lambda x: tf.cond(x > 0, lambda: numpy_function(adder.add, [x], tf.int64), lambda: x)
    ).get_concrete_function(ONE)


def traced_within_a_function_that_is_gone(adder):
    inner = compiled(lambda x: numpy_function(adder.add, [x], tf.int64))
    compiled(lambda x: inner(x))(tf.constant(1, tf.int64))
    gc.collect()
    return compiled(lambda x: inner(x)).get_concrete_function(ONE)


def traced_before_the_function_that_calls_it(adder):
    inner = compiled(lambda x: numpy_function(adder.add, [x], tf.int64))
    inner(tf.constant(5, tf.int64))
    return compiled(lambda x: inner(x)).get_concrete_function(ONE)


def first_of(make):
    def use(adder):
        dataset = make(adder)
        return lambda x: next(iter(dataset))

    return use


def iterated(adder):
    left = iter(from_generator(adder.count, SPEC).prefetch(1))
    return lambda x: next(left)


def in_replicas(adder):
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    dataset = from_generator(lambda: adder.count(1), SPEC).batch(1)
    distributed = strategy.experimental_distribute_dataset(dataset)
    return lambda x: next(iter(distributed))[0]


WAYS = {
    "graph": in_a_graph,
    "cycle": in_a_cycle,
    "branch": in_a_branch,
    "inner, outer gone": traced_within_a_function_that_is_gone,
    "inner, traced before": traced_before_the_function_that_calls_it,
    "map": first_of(
        lambda adder: tf.data.Dataset.range(1, 3).map(
            lambda x: numpy_function(adder.add, [x], tf.int64)
        )
    ),
    "generator": first_of(lambda adder: from_generator(lambda: adder.count(1), SPEC).prefetch(2)),
    "interleave": first_of(
        lambda adder: tf.data.Dataset.range(1, 4).interleave(
            lambda x: from_generator(adder.count, SPEC, (x,)), cycle_length=2, num_parallel_calls=2
        )
    ),
    "cardinality": first_of(
        lambda adder: from_generator(lambda: adder.count(1), SPEC, name="numbers").apply(
            tf.data.experimental.assert_cardinality(3)
        )
    ),
    "replicas": in_replicas,
}


@pytest.mark.parametrize("name", WAYS)
def test_a_function_is_freed_with_what_calls_it(name):
    adder = Adder()
    call, reference = WAYS[name](adder), weakref.ref(adder)
    del adder
    gc.collect()
    assert int(call(tf.constant(1, tf.int64))) == 2
    del call
    gc.collect()
    gc.collect()  # an iterator is freed with a reference to its dataset
    assert reference() is None


def test_an_iterator_keeps_its_function():
    adder = Adder()
    call, reference = iterated(adder), weakref.ref(adder)
    del adder
    gc.collect()
    assert [int(call(None)) for _ in range(3)] == [1, 2, 3]
    del call
    gc.collect()
    assert reference() is None


def calling(function):
    """A compiled function that calls another one with 3 ids."""
    call = tf.function(lambda ids_U: call_python(function, [ids_U], tf.int32), autograph=False)
    return lambda: call(tf.constant([3, 1, 2]))


def test_a_function_is_called_whenever_the_graph_runs():
    call = calling(lambda ids_U: np.sort(ids_U) * 2)
    for _ in range(2):
        assert call().numpy().tolist() == [2, 4, 6]


def test_an_error_of_a_table_keeps_its_type_and_text():
    def fail(ids_U):
        raise DamagedError("rows is damaged:\nput back a copy")

    call = calling(fail)
    for _ in range(2):
        with pytest.raises(DamagedError, match="^rows is damaged:\nput back a copy$"):
            with table_errors():
                call()


def test_other_errors_stay_as_they_are_also_after_an_error_of_a_table():
    def fail(ids_U):
        raise RunError("the table is full")

    def err(ids_U):
        raise RuntimeError("RunError: is a part of this text")

    with pytest.raises(tf.errors.UnknownError, match="the table is full"):
        calling(fail)()
    with pytest.raises(tf.errors.UnknownError, match="is a part of this"), table_errors():
        calling(err)()
    with pytest.raises(RunError, match="directly"), table_errors():
        raise RunError("directly")


# The memory of graphs that have custom gradients.


APP = pathlib.Path(__file__).parents[2] / "app"


def test_no_gradient_is_registered_for_good():
    uses = [path for path in APP.rglob("*.py") if "tf.custom_gradient" in path.read_text("utf-8")]
    assert uses == [APP / "system/python_functions.py"]


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
