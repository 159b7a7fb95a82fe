import concurrent.futures
import threading

import numpy as np
import pytest
import tensorflow as tf

from app.tables.variable import VariableRows, compute_in_graph

# Numbers that every type holds.
ROWS = np.arange(12, dtype=np.float32).reshape(6, 2)
DTYPES = {"float32": tf.float32, "bfloat16": tf.bfloat16, "float16": tf.float16}
WAYS = {"eager": lambda function: function, "xla": tf.function(jit_compile=True, autograph=False)}


@pytest.fixture(params=DTYPES)
def rows(request):
    return VariableRows(tf.Variable(tf.constant(ROWS, DTYPES[request.param])))


@pytest.fixture(params=WAYS)
def compiled(request):
    return WAYS[request.param]


def held(rows):
    return tf.cast(rows.values, tf.float32).numpy()


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_rows_are_gathered_and_assigned_and_no_others(rows, compiled, dtype):
    def change(ids_U, delta_UD, rows_UD):
        before_UD = rows.gather(tf.concat([ids_U, ids_U], axis=0))
        rows.assign(ids_U[:2], rows.gather(ids_U[:2]) + delta_UD)
        rows.assign(ids_U[2:], rows_UD)
        return before_UD

    delta, new = np.float32([[0.5, 2], [-4, 8]]), np.float32([[1, -1], [0.25, 0]])
    found = compiled(change)(tf.constant([4, 1, 0, 5], dtype), delta, new)
    assert found.dtype == tf.float32
    np.testing.assert_array_equal(found, ROWS[[4, 1, 0, 5] * 2])
    expected = ROWS.copy()
    expected[[4, 1]] += delta
    expected[[0, 5]] = new
    np.testing.assert_array_equal(held(rows), expected)


def test_no_ids_are_nothing_to_do(rows, compiled):
    def change(ids_U, rows_UD):
        rows.assign(ids_U, rows_UD)
        return rows.gather(ids_U)

    assert compiled(change)(tf.zeros([0], tf.int32), tf.zeros([0, 2])).shape == (0, 2)
    np.testing.assert_array_equal(held(rows), ROWS)


def test_what_is_stored_is_the_nearest_number_that_the_type_has(rows, compiled):
    third = tf.constant([[1 / 3, -1 / 3]])
    found = compiled(
        lambda: rows.assign(tf.constant([2]), third) or rows.gather(tf.constant([2]))
    )()
    nearest = np.float32([1 / 3, -1 / 3]).astype(rows.values.dtype.as_numpy_dtype)
    np.testing.assert_array_equal(found[0], nearest.astype(np.float32))


def test_a_row_that_is_not_there_is_refused_on_a_cpu(rows):
    with tf.device("CPU:0"):
        cpu = VariableRows(tf.Variable(rows.values))
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"6 is not in \[0, 6\)"):
            cpu.gather(tf.constant([6]))


def test_what_is_drawn_is_what_was_asked_for_without_a_word(caplog):
    """TensorFlow logs a warning when five functions are traced one after another."""
    values = [
        compute_in_graph(
            lambda seed=seed: tf.random.stateless_uniform((3, 2), [seed, 1], -2.0, 2.0)
        )
        for seed in range(8)
    ]
    for seed, value in enumerate(values):
        expected = tf.random.stateless_uniform((3, 2), [seed, 1], -2.0, 2.0)
        assert value.numpy().tobytes() == expected.numpy().tobytes()
    assert caplog.records == []


def test_threads_that_draw_at_once_leave_constant_folding_as_it_was():
    drawing, left = threading.Event(), threading.Event()

    def first():
        drawing.set()
        assert left.wait(60)
        return tf.random.stateless_uniform((3,), [1, 2])

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        drawn = pool.submit(compute_in_graph, first)
        assert drawing.wait(60)
        compute_in_graph(lambda: tf.random.stateless_uniform((3,), [1, 2]) + options_are_usual())
        left.set()
        drawn.result()
    options_are_usual()


def options_are_usual():
    assert tf.config.optimizer.get_experimental_options().get("constant_folding", True)
    return 0.0
