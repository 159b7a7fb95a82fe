"""Python functions live as long as a graph or a dataset that calls them, and no longer."""

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

from app.errors import DamagedError, RunError
from app.system.python_functions import call_python, from_generator, numpy_function, table_errors

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
