import numpy as np
import pytest
import tensorflow as tf

from app.losses import sampling

COUNTS = (10_000 / np.arange(1, 31)).astype(np.int64)


def draws(counts, power, groups, samples, seeds):
    """The ids that many seeds give, (seeds, G, K)."""
    cumulative = tf.constant(sampling.cumulative_distribution(counts, power))

    @tf.function
    def draw():
        return tf.map_fn(
            lambda step: sampling.draw_stratified(cumulative, groups, samples, tf.stack([7, step])),
            tf.range(seeds, dtype=tf.int32),
        )

    return draw().numpy()


def test_cumulative_is_of_counts_to_the_power_in_float64():
    found = sampling.cumulative_distribution(np.array([16, 1, 81]), 0.75)
    np.testing.assert_allclose(found, [8 / 36, 9 / 36, 1])
    assert found.dtype == np.float64
    # float32 would give the rare ids no share at all.
    assert (np.diff(sampling.cumulative_distribution(np.array([10**12, 1, 1]), 1.0)) > 0).all()


def test_each_group_is_drawn_from_the_whole_distribution():
    found = draws(np.ones(6), 1.0, 3, 2, 3000)
    for group in range(3):
        # A group has a third of the parts; over them its ids are no more often one than another.
        counts = np.bincount(found[:, group].ravel(), minlength=6)
        assert counts[group] == counts[group + 3] == 3000


def test_every_stratum_gives_one_id_and_a_group_spreads_over_them():
    found = sampling.draw_stratified(
        tf.constant(sampling.cumulative_distribution(np.ones(20), 1.0)), 4, 5, tf.constant([1, 2])
    )
    assert found.dtype == tf.int32
    np.testing.assert_array_equal(found, np.arange(20).reshape(5, 4).T)


def test_a_frequent_id_comes_as_often_as_it_should_in_every_draw():
    groups, samples = 8, 16
    share = COUNTS**0.75 / (COUNTS**0.75).sum() * groups * samples
    for found in draws(COUNTS, 0.75, groups, samples, 20):
        assert (abs(np.bincount(found.ravel(), minlength=len(COUNTS)) - share) < 2).all()


@pytest.mark.parametrize("uniform", [0.0, np.nextafter(1.0, 0.0)])
def test_ids_stay_in_range_at_the_ends_of_the_distribution(monkeypatch, uniform):
    def draw(shape, seed, dtype):
        return tf.fill(shape, tf.constant(uniform, dtype))

    monkeypatch.setattr(tf.random, "stateless_uniform", draw)
    # Of 1,000 parts the last plus such a uniform rounds to the end of the distribution itself.
    cumulative = tf.constant(sampling.cumulative_distribution(np.array([0, 1, 1, 1]), 1.0))
    found = sampling.draw_stratified(cumulative, 10, 100, tf.constant([0, 0])).numpy()
    assert found.min() == 1 and found.max() == 3


def test_ids_without_a_count_are_never_drawn():
    found = draws(np.array([0, 5, 0, 5, 0, 1]), 0.75, 4, 8, 100)
    assert set(found.ravel().tolist()) == {1, 3, 5}


def test_equal_seeds_give_equal_draws():
    cumulative = tf.constant(sampling.cumulative_distribution(COUNTS, 0.75))
    one, same, other = (
        sampling.draw_stratified(cumulative, 4, 8, tf.constant(seed, tf.int64)).numpy()
        for seed in ([1, 2], [1, 2], [1, 3])
    )
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


@pytest.mark.parametrize("size", [1, 2, 3, 31, 32, 33, 1000])
def test_xla_draws_the_same_ids_in_a_number_of_reads_that_hardly_grows(size):
    counts = np.random.default_rng(size).integers(0, 9, size)
    counts[0] += 1
    cumulative = tf.Variable(sampling.cumulative_distribution(counts, 0.75))

    def draw(seed):
        return sampling.draw_stratified(cumulative, 3, 50, seed)

    compiled = tf.function(draw, autograph=False, jit_compile=True)
    for seed in ([1, 2], [(2 << 40) + 1, 77]):
        seed = tf.constant(seed, tf.int64)
        np.testing.assert_array_equal(compiled(seed), draw(seed))
    program = compiled.experimental_get_compiler_ir(seed)(stage="hlo")
    assert size < 31 or f"[150,{size}]" not in program, "each point compared with all numbers"
