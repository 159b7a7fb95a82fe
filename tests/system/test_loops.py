import numpy as np
import pytest
import tensorflow as tf

from app.system.loops import creation_stack, unroll

CALLS = 4


@tf.function(jit_compile=True, autograph=False)
def squared(x):
    return x * x + 1.0


def make_step(variable, pairs):
    """A step that reads and writes a variable, draws, loops, and calls XLA and Python."""

    def step(batch, number, kind):
        drawn = tf.random.stateless_uniform([3], batch["seed"])
        looped = tf.while_loop(
            lambda i, total: i < 3, lambda i, total: (i + 1, total + drawn), (0, tf.zeros([3]))
        )[1]
        before = variable.read_value()
        variable.scatter_add(tf.IndexedSlices(looped * number, batch["ids"]))
        variable.assign(squared(variable) - 1.0 + before)
        called = tf.py_function(lambda x: pairs.append(float(x)) or x, [number], tf.float32)
        with tf.device("CPU:0"):
            return {"sum": tf.reduce_sum(variable) + called, "kind": tf.constant(kind)}, number * 2

    return step


def arguments(base):
    random = np.random.default_rng(1)
    return [
        (
            {
                "ids": tf.constant(random.permutation(5)[:3]) + tf.cast(base, tf.int64),
                "seed": tf.stack([tf.cast(base, tf.int64), tf.constant(index, tf.int64)]),
            },
            tf.cast(base, tf.float32) + index / 8,
            "kind",
        )
        for index in range(CALLS)
    ]


@pytest.mark.parametrize("calls", [1, CALLS])
def test_the_results_are_those_of_a_trace_of_each_call(calls):
    found = {}
    for unrolled in (False, True):
        variable, numbers = tf.Variable(tf.fill([5], 0.1)), []
        step = make_step(variable, numbers)

        @tf.function(autograph=False)
        def run(base, step=step, unrolled=unrolled):
            given = arguments(base)[:calls]
            return unroll(step, given) if unrolled else [step(*call) for call in given]

        results = [run(tf.constant(0)), run(tf.constant(0))]
        flat = [tensor.numpy() for tensor in tf.nest.flatten(results)]
        found[unrolled] = flat, numbers, variable.numpy().tolist()
        operations = [
            op.type for op in run.get_concrete_function(tf.constant(0)).graph.get_operations()
        ]
        found[unrolled] += (sorted(operations),)
    assert found[True] == found[False]
    assert len(found[True][1]) == 2 * calls


def test_python_is_called_once_and_each_copy_knows_its_line():
    traced = []

    def step(x):
        traced.append(x)
        return tf.exp(x)

    @tf.function(autograph=False)
    def run(x_S):
        return unroll(step, [(x,) for x in tf.unstack(x_S)])

    graph = run.get_concrete_function(tf.constant([1.0, 2.0, 3.0])).graph
    exps = [operation for operation in graph.get_operations() if operation.type == "Exp"]
    assert len(traced) == 1 and len(exps) == 3
    for operation in exps:
        frames = [frame for frame in creation_stack(operation) if frame.filename == __file__]
        assert frames[-1].name == "step"
    np.testing.assert_allclose(run(tf.constant([1.0, 2.0, 3.0])), np.exp([1.0, 2.0, 3.0]), 1e-6)


def test_an_argument_that_no_operation_uses_and_one_that_two_use():
    @tf.function(autograph=False)
    def run(x_S):
        calls = [(x, x + 1.0, x) for x in tf.unstack(x_S)]
        return unroll(lambda x, unused, same: x * same, calls)

    assert [float(y) for y in run(tf.constant([2.0, 3.0]))] == [4.0, 9.0]
