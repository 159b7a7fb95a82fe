import numpy as np
import pytest
import tensorflow as tf

from app.tables.id_checks import check_ids, failed_check, require

ROWS = 100
BOTH = pytest.mark.parametrize("dtype", [tf.int32, tf.int64])


def eager(ids):
    return check_ids(ids, ROWS, "words")


def compiled(ids):
    return tf.function(eager, autograph=False)(ids)


WAYS = pytest.mark.parametrize("way", [eager, compiled])


@WAYS
@BOTH
@pytest.mark.parametrize(
    "ids", [[0, 99], [[5, 5], [5, 5]], [], np.zeros([2, 0]), 7], ids=lambda ids: str(np.shape(ids))
)
def test_ids_that_are_rows_come_back_as_they_are(way, dtype, ids):
    found = way(tf.constant(ids, dtype))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, ids)


@WAYS
@BOTH
@pytest.mark.parametrize(
    ("ids", "smallest", "largest"),
    [
        ([3, 100, 5], 100, 100),
        ([3, -1, 5], -1, -1),
        ([[100, -7], [2**31 - 1, 99]], -7, 2**31 - 1),
        ([-5, -5, -5], -5, -5),
        (-(2**31), -(2**31), -(2**31)),
    ],
)
def test_the_smallest_and_the_largest_id_that_are_not_are_named(way, dtype, ids, smallest, largest):
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        way(tf.constant(ids, dtype))
    text = " ".join(str(raised.value).replace("'", "").replace("[", "").replace("]", "").split())
    assert (
        "words: ids must be from 0 to 99; the smallest id out of range is "
        f"{smallest} and the largest {largest}"
    ) in text


def test_a_table_that_int32_cannot_count():
    ids = tf.constant([0, 2**31 - 1], tf.int32)
    np.testing.assert_array_equal(check_ids(ids, 3 * 10**9, "words"), ids)
    ids = tf.constant([0, 3 * 10**9], tf.int64)
    with pytest.raises(tf.errors.InvalidArgumentError, match="2999999999"):
        check_ids(ids, 3 * 10**9, "words")


@BOTH
def test_code_compiled_by_xla_checks_nothing_and_takes_the_nearest_row(dtype):
    values = tf.Variable(tf.range(float(ROWS)))

    @tf.function(jit_compile=True, autograph=False)
    def read(ids):
        return tf.gather(values, check_ids(ids, ROWS, "words"))

    np.testing.assert_array_equal(read(tf.constant([3, -1, 100], dtype)), [3, 0, 99])


@pytest.mark.parametrize("graph", [False, True])
def test_values_that_fit_a_condition_come_back_as_they_are(graph):
    def fits(value):
        return require(value > 2, "words: give more than 2", value)

    way = tf.function(fits, autograph=False) if graph else fits
    assert way(tf.constant(3)) == 3
    with pytest.raises(tf.errors.InvalidArgumentError, match="words: give more than 2"):
        way(tf.constant(2))


def test_the_message_of_the_check_that_failed():
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        compiled(tf.constant([3, -1, 100]))
    message = failed_check(raised.value)
    assert message.startswith("words: ids must be from 0 to 99; the smallest id out of range")
    assert message.endswith("is -1 and the largest 100")
    assert failed_check(tf.errors.InvalidArgumentError(None, None, "another [error]")) is None
