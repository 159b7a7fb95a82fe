import numpy as np
import pytest
import tensorflow as tf

from app.tables.rounding import round_stochastically, round_under_xla

TYPES = [tf.bfloat16, tf.float16]
every = pytest.mark.parametrize("dtype", TYPES)


def rounded(values, dtype, *seed):
    given = tf.constant(np.atleast_2d(np.asarray(values, np.float32)))
    return round_stochastically(given, dtype, tf.constant(seed or (1, 2), tf.int64)).numpy()


def neighbours(values, dtype):
    """The numbers of the type below and above each, found among all 65,536."""
    with np.errstate(invalid="ignore"):
        every = np.arange(65_536, dtype=np.uint16).view(dtype.as_numpy_dtype).astype(np.float64)
    every = np.unique(every[np.isfinite(every)])
    above = np.searchsorted(every, values)
    return every[above - 1], every[above]


@every
def test_what_the_type_can_hold_stays_bit_for_bit(dtype):
    held = np.arange(65_536, dtype=np.uint16).view(dtype.as_numpy_dtype).reshape(-1, 64)
    with np.errstate(invalid="ignore"):
        values = held.astype(np.float32)
    found = rounded(values, dtype)
    nan = np.isnan(values)
    assert (found.view(np.uint16) == held.view(np.uint16))[~nan].all()
    assert np.isnan(found.astype(np.float32)[nan]).all() and nan.any()


@every
def test_a_number_becomes_a_neighbour_and_is_right_on_average(dtype):
    random = np.random.default_rng(0)
    draws, least = 20_000, {tf.bfloat16: -132, tf.float16: -25}[dtype]
    # Of every exponent, signs and subnormal numbers among them; two seeds give other columns.
    exponents = np.arange(least, 16)
    values = np.ldexp(random.uniform(0.5, 1, len(exponents)), exponents).astype(np.float32)
    values *= random.choice([-1, 1], len(values)).astype(np.float32)
    found = rounded(np.tile(values, (draws, 1)), dtype).astype(np.float64)
    below, above = neighbours(values.astype(np.float64), dtype)
    assert ((found == below) | (found == above)).all()
    expected = (values - below) / (above - below)
    up = (found == above).mean(axis=0)
    error = np.sqrt(expected * (1 - expected) / draws)
    assert (abs(up - expected) < 5 * error + 1e-12).all()
    # Numbers of a row, and of a column, are rounded independently of each other.
    apart = (found - values) / (above - below)
    assert abs(np.corrcoef(apart.T) - np.eye(len(values))).max() < 6 / np.sqrt(draws)
    assert np.var(apart.mean(axis=1)) == pytest.approx(
        np.mean(error**2) * draws / len(values), rel=0.1
    )


@pytest.mark.parametrize(("dtype", "beyond"), [(tf.float16, 65_530.0), (tf.bfloat16, 3.4e38)])
def test_nothing_is_rounded_beyond_the_largest(dtype, beyond):
    largest = float(dtype.max)
    found = rounded(np.full((100, 3), [beyond, -beyond, np.inf]), dtype).astype(np.float32)
    np.testing.assert_array_equal(found, np.full((100, 3), [largest, -largest, np.inf], np.float32))


def test_what_float16_has_no_room_for_is_infinite():
    found = rounded([65_536.0, -1e30], tf.float16).astype(np.float32)
    np.testing.assert_array_equal(found, [[np.inf, -np.inf]])


def test_a_number_far_below_the_smallest_float16_is_kept_on_average():
    found = rounded(np.full((4_000, 500), 2.0**-34), tf.float16).astype(np.float64)
    assert set(np.unique(found)) == {0.0, 2.0**-24}
    assert found.mean() == pytest.approx(2.0**-34, rel=0.12)  # five standard deviations


@every
def test_a_seed_is_a_draw(dtype):
    values = np.random.default_rng(0).normal(size=(40, 30))
    found = rounded(values, dtype, 5, 1).astype(np.float32)
    assert (found == rounded(values, dtype, 5, 1)).all()
    for other in ((5, 2), (6, 1)):
        same = (found == rounded(values, dtype, *other)).mean()
        assert 0.6 < same < 0.73  # by chance, two thirds


@every
def test_any_number_of_rows(dtype):
    for count in (0, 1, 513):
        assert rounded(np.ones((count, 3)), dtype).shape == (count, 3)


@every
def test_under_xla_unique_ids_are_rounded_right_on_average(dtype):
    @tf.function(autograph=False, jit_compile=True)
    def rounded(ids, seed):
        ids_U, _ = tf.unique(ids)  # a number of rows that XLA does not know
        rows_UD = tf.tile(tf.cast(ids_U, tf.float32)[:, tf.newaxis], (1, 400)) + 2.0**-10
        return ids_U, tf.cast(round_under_xla(rows_UD, dtype, seed, ids_U), tf.float32)

    ids = tf.concat([tf.range(16, 48), tf.range(16, 48)], axis=0)
    ids_U, found = rounded(ids, tf.constant([3, 4], tf.int64))
    apart = found.numpy() - ids_U.numpy()[:, np.newaxis]
    assert found.shape == (32, 400) and (apart >= 0).all()
    assert apart.mean() == pytest.approx(2.0**-10, rel=0.6)  # five standard deviations
    assert len(np.unique(apart > 0, axis=0)) > 16  # rows are not rounded alike
    _, same = rounded(ids, tf.constant([3, 4], tf.int64))
    _, other = rounded(ids, tf.constant([3, 5], tf.int64))
    assert (same.numpy() == found.numpy()).all() and (other.numpy() != found.numpy()).any()
