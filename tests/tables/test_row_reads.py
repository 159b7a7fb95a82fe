import numpy as np
import pytest
import tensorflow as tf

from app.tables.row_reads import (
    rows_to_read,
    sum_rows,
    take,
    unique,
    unique_by_representative,
)
from app.types import Rows

IDS = np.array([[7, 2, 7], [5, 2, 7]], np.int32)


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_distinct_ids_come_in_order_of_appearance_with_everyones_place(dtype):
    ids_U, inverse_N = unique(tf.constant(IDS, dtype))
    assert ids_U.dtype == dtype and inverse_N.dtype == tf.int32
    np.testing.assert_array_equal(ids_U, [7, 2, 5])
    np.testing.assert_array_equal(ids_U.numpy()[inverse_N], IDS.ravel())


@tf.function(autograph=False, jit_compile=True, input_signature=[tf.TensorSpec([None], tf.int64)])
def compiled_unique(ids_N):
    """Return `unique` of all ids, of its result, and of the positive ids."""
    ids_U, inverse_N = unique(ids_N)
    positive_P = tf.boolean_mask(ids_N, ids_N > 0)
    return (ids_U, inverse_N), unique(ids_U), (positive_P, *unique(positive_P))


@pytest.mark.parametrize("size", [0, 1, 2, 50])
def test_xla_pads_distinct_ids_with_a_number_that_is_no_row(size):
    ids = np.random.default_rng(size).integers(-5, 20, size)
    (ids_U, inverse_N), (again_U, again_N), (positive_P, known_U, known_P) = [
        [each.numpy() for each in part] for part in compiled_unique(tf.constant(ids))
    ]
    expected = np.unique(ids)
    padding = np.full(size - len(expected), tf.int64.max)
    np.testing.assert_array_equal(ids_U, [*expected, *padding])
    np.testing.assert_array_equal(ids_U[inverse_N], ids)
    np.testing.assert_array_equal(again_U, ids_U)
    np.testing.assert_array_equal(again_U[again_N], ids_U)
    np.testing.assert_array_equal(positive_P, ids[ids > 0])
    np.testing.assert_array_equal(known_U[: len(np.unique(positive_P))], np.unique(positive_P))
    np.testing.assert_array_equal(known_U[known_P], positive_P)


@pytest.mark.parametrize("ids", [[7, 2, 7, 5], [1], []])
def test_ids_to_read_are_those_of_rows_under_xla(ids):
    run = tf.function(rows_to_read, autograph=False, jit_compile=True)
    ids_U, inverse_N = run(tf.constant(ids, tf.int32))
    assert set(ids_U.numpy()) == set(ids)
    np.testing.assert_array_equal(ids_U.numpy()[inverse_N], ids)
    assert len(set(inverse_N.numpy())) == len(set(ids))


@pytest.mark.parametrize("size", [None, 6])
def test_static_shapes_stay_static_under_xla(size):
    run = tf.function(unique, autograph=False, jit_compile=True)
    traced = run.get_concrete_function(tf.TensorSpec([size], tf.int32))
    assert [each.shape.as_list() for each in traced.outputs] == [[size], [size]]


@pytest.mark.parametrize(
    "dtype", [tf.int8, tf.uint8, tf.int16, tf.uint16, tf.int32, tf.uint32, tf.int64, tf.uint64]
)
def test_ids_of_every_dtype_under_xla(dtype):
    run = tf.function(unique, autograph=False, jit_compile=True)
    ids_U, inverse_N = run(tf.constant([127, 3, 127], dtype))
    no_row = max(tf.int32.max, dtype.max)
    assert ids_U.numpy().tolist() == [3, 127, no_row]
    np.testing.assert_array_equal(inverse_N, [1, 0, 1])


@pytest.mark.parametrize("repeats", [1, 20])
def test_the_gradient_is_that_of_dense_autodiff(repeats):
    random = np.random.default_rng(0)
    table = tf.constant(random.normal(size=(10, 4)), tf.float32)
    ids = tf.constant(random.permutation(np.tile(IDS.ravel(), repeats)))
    weights = tf.constant(random.normal(size=(len(ids), 4)), tf.float32)

    with tf.GradientTape() as tape:
        tape.watch(table)
        loss = tf.reduce_sum(weights * tf.gather(table, ids) ** 2)
    dense = tf.convert_to_tensor(tape.gradient(loss, table))

    ids_U, inverse_N = unique(ids)
    values_UD = tf.gather(table, ids_U)
    with tf.GradientTape() as tape:
        tape.watch(values_UD)
        loss = tf.reduce_sum(weights * take(Rows(values_UD, inverse_N), tf.float32) ** 2)
    found = tape.gradient(loss, values_UD)
    assert found.shape == values_UD.shape
    np.testing.assert_allclose(found, tf.gather(dense, ids_U), rtol=1e-5, atol=1e-5)


def test_low_precision_rows_have_float32_gradients():
    ids_U, inverse_N = unique(tf.ones([1000], tf.int32))
    values_UD = tf.constant([[1.0, 1 / 3]])
    with tf.GradientTape() as tape:
        tape.watch(values_UD)
        taken = take(Rows(values_UD, inverse_N), tf.bfloat16)
        loss = tf.reduce_sum(tf.cast(taken, tf.float32))
    assert taken.dtype == tf.bfloat16 and taken.shape == (1000, 2)
    # A sum in bfloat16 would stop at 256.
    np.testing.assert_array_equal(tape.gradient(loss, values_UD), [[1000, 1000]])


def test_sums_by_representatives_are_those_of_sorted_ids_bit_for_bit():
    rows, sizes, columns = (7, 50), (64, 200), 3
    generator = np.random.default_rng(3)
    ids = [generator.integers(0, v, n, np.int32) for v, n in zip(rows, sizes, strict=True)]
    values = [generator.normal(size=(n, columns)).astype(np.float32) for n in sizes]
    indices = tf.Variable(generator.integers(0, 9, sum(rows)).astype(np.uint32))  # not cleared

    @tf.function(jit_compile=True)
    def sums(by_representative):
        found = [unique(ids_N) for ids_N in ids]
        if by_representative:
            tables = [tf.constant(ids_N) for ids_N in ids]
            found = unique_by_representative(tables, (0, rows[0]), indices)
        return [
            (ids_U, sum_rows(tf.constant(values_ND), inverse_N, len(values_ND)))
            for (ids_U, inverse_N), values_ND in zip(found, values, strict=True)
        ]

    for (found_U, found_UD), (ids_U, sums_UD), ids_N in zip(
        sums(True), sums(False), ids, strict=True
    ):
        is_row = found_U.numpy() < 50
        order = np.argsort(found_U.numpy()[is_row])
        expected = np.unique(ids_N)
        np.testing.assert_array_equal(found_U.numpy()[is_row][order], expected)
        np.testing.assert_array_equal(ids_U.numpy()[: len(expected)], expected)
        np.testing.assert_array_equal(
            found_UD.numpy()[is_row][order], sums_UD.numpy()[: len(expected)]
        )
        assert not found_UD.numpy()[~is_row].any()
