import numpy as np
import tensorflow as tf

from app.auditing.graphs import executed, number, shape_of


def traced(function, *specs):
    return tf.function(function, autograph=False).get_concrete_function(*specs).graph


def test_what_neither_results_nor_effects_depend_on_does_not_run():
    v = tf.Variable(1.0)

    def step(x):
        tf.sqrt(x)
        v.assign_add(tf.square(x))
        return tf.exp(x)

    types = [operation.type for operation in executed(traced(step, tf.TensorSpec([])))]
    assert {"Square", "AssignAddVariableOp", "Exp"} <= set(types)
    assert "Sqrt" not in types and types.index("Square") < types.index("AssignAddVariableOp")


def test_shapes_come_from_numbers_outside_the_function():
    def step(dimensions, ids):
        filled = tf.fill(dimensions, 1.0)
        summed = tf.math.unsorted_segment_sum(
            tf.ones((2, 3)), ids, tf.cast(dimensions[0], tf.int64)
        )
        return filled, summed, tf.sqrt(filled)

    graph = traced(step, tf.TensorSpec([2], tf.int32), tf.TensorSpec([2], tf.int32))
    filled, summed, root = graph.outputs
    filled, summed, root = filled.op.inputs[0], summed.op.inputs[0], root.op.inputs[0]
    known = {graph.inputs[0].name: np.array([5, 3])}
    assert shape_of(filled, known) == (5, 3) and shape_of(filled, {}) is None
    assert shape_of(summed, known) == (5, 3) and shape_of(summed, {}) is None
    assert shape_of(root, known) is None


def test_a_number_is_a_constant_an_argument_or_an_element_of_one():
    def step(sizes, x):
        return tf.constant([7, 8]), tf.cast(sizes, tf.int64)[1], sizes + 1, x, tf.range(100)

    graph = traced(step, tf.TensorSpec([2], tf.int32), tf.TensorSpec([]))
    known = {graph.inputs[0].name: np.array([5, 3])}
    constant, element, computed, real, long = (number(t, known) for t in graph.outputs)
    assert constant.tolist() == [7, 8] and element == 3
    assert computed is None and real is None and long is None
