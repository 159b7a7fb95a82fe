"""Sampled softmax and NCE against TensorFlow's, given the same samples, and dense autodiff."""

import numpy as np
import pytest
import tensorflow as tf

from app.losses import inference, sampling
from app.losses.classes.class_softmax import ClassSoftmax
from app.losses.negative_sampling import logistic
from app.losses.sampled_losses import Nce, SampledSoftmax
from app.tables.row_reads import unique
from app.types import Rows
from tests.losses import toy
from tests.losses.toy import DIM
from tests.reference.graphs import executed

WORDS, SAMPLES = 40, 16
COUNTS = toy.counts(WORDS)
SEED = tf.constant([3, 4], tf.int64)

both = pytest.mark.parametrize("kind", [SampledSoftmax, Nce])
samplers = pytest.mark.parametrize("sampler", ["log_uniform", "unigram"])


def looked_up(loss, predictions, table, seed=SEED):
    """The distinct rows of the loss's lookups, and the samples among them."""
    vectors = int(tf.size(predictions.weights_GNM[..., 0]))
    ids_N = loss.lookups(predictions.targets_GM, vectors, seed)["output"]
    ids_U, inverse_N = unique(ids_N)
    rows = Rows(table.gather(ids_U), inverse_N, ids_U)
    return rows, ids_N[tf.size(predictions.targets_GM) :]


def expected_counts(sampler, ids, words=WORDS, counts=COUNTS, samples=SAMPLES):
    """K q(id), from the formulas."""
    every = np.arange(words)
    share = {
        "log_uniform": np.log((every + 2) / (every + 1)) / np.log(words + 1),
        "unigram": np.maximum(counts, 1) ** 0.75 / (np.maximum(counts, 1) ** 0.75).sum(),
    }[sampler]
    np.testing.assert_allclose(share.sum(), 1)
    return tf.constant(samples * share[np.asarray(ids)], tf.float32)


def of_tensorflow(kind, sampler, rows_VD, hidden_ND, targets_N, drawn_K):
    """(N,), from whole tables."""
    function = tf.nn.sampled_softmax_loss if kind is SampledSoftmax else tf.nn.nce_loss
    expected = [expected_counts(sampler, ids) for ids in (targets_N[:, None], drawn_K)]
    return function(
        weights=rows_VD,
        biases=tf.fill([WORDS], 0.0 if kind is SampledSoftmax else -np.float32(np.log(WORDS))),
        labels=tf.cast(targets_N[:, None], tf.int64),
        inputs=hidden_ND,
        num_sampled=SAMPLES,
        num_classes=WORDS,
        sampled_values=(tf.cast(drawn_K, tf.int64), *expected),
        remove_accidental_hits=kind is SampledSoftmax,
    )


@both
@samplers
def test_loss_and_gradients_are_tensorflows(kind, sampler):
    loss = kind(COUNTS, DIM, SAMPLES, sampler)
    table = toy.make_tables(loss)["output"]
    hidden_ND, targets_N = toy.hidden(count=60), toy.targets(WORDS, count=60)
    weights_N = tf.constant(np.random.default_rng(3).random(60), tf.float32)
    predictions = toy.singly(hidden_ND, targets_N, weights_N)
    rows, drawn_K = looked_up(loss, predictions, table)
    assert drawn_K.shape == (SAMPLES,)
    counts = np.bincount(drawn_K, minlength=WORDS)[targets_N]
    assert counts.min() == 0 and counts.max() > 1  # misses and hits, some of them repeated
    with tf.GradientTape() as tape:
        tape.watch((hidden_ND, rows.values_UD))
        predictions = toy.singly(hidden_ND, targets_N, weights_N)
        total, parts = loss.loss(predictions, {"output": rows})
    by_hidden, by_rows = tape.gradient(total, (hidden_ND, rows.values_UD))

    rows_VD = tf.constant(table.values)
    with tf.GradientTape() as tape:
        tape.watch((hidden_ND, rows_VD))
        dense_N = of_tensorflow(kind, sampler, rows_VD, hidden_ND, targets_N, drawn_K)
        expected = tf.reduce_sum(weights_N * dense_N)
    dense_hidden, dense_rows = tape.gradient(expected, (hidden_ND, rows_VD))
    assert parts == [] and total.shape == ()
    np.testing.assert_allclose(total, expected, rtol=1e-5)
    np.testing.assert_allclose(by_hidden, dense_hidden, rtol=1e-4, atol=1e-5)
    found = np.zeros((WORDS, DIM), np.float32)
    found[rows.ids_U] = by_rows
    np.testing.assert_allclose(found, tf.convert_to_tensor(dense_rows), rtol=1e-4, atol=1e-5)
    each_N = loss.vector_losses(toy.singly(hidden_ND, targets_N), {"output": rows})
    np.testing.assert_allclose(each_N, dense_N, rtol=1e-4, atol=1e-5)


@both
def test_a_group_is_all_its_pairs(kind):
    loss = kind(COUNTS, DIM, SAMPLES, "unigram")
    table = toy.make_tables(loss)["output"]
    predictions, singles, _ = toy.groups(WORDS)
    rows, _ = looked_up(loss, predictions, table)
    total, _ = loss.loss(predictions, {"output": rows})
    rows, _ = looked_up(loss, singles, table)
    np.testing.assert_allclose(total, loss.loss(singles, {"output": rows})[0], rtol=1e-5)


@pytest.mark.slow
@samplers
def test_samples_come_as_often_as_expected(sampler):
    loss = SampledSoftmax(COUNTS, DIM, SAMPLES, sampler)
    targets_GM = tf.zeros((1, 1), tf.int32)
    draws = [
        loss.lookups(targets_GM, 1, tf.constant([1, step]))["output"][1:] for step in range(300)
    ]
    found = np.bincount(np.concatenate(draws), minlength=WORDS) / len(draws)
    expected = expected_counts(sampler, np.arange(WORDS))
    np.testing.assert_allclose(found, expected, atol=4 * np.sqrt(0.25 / len(draws)))
    again = loss.lookups(targets_GM, 1, tf.constant([1, 7]))["output"][1:]
    np.testing.assert_array_equal(again, draws[7])
    assert (draws[8] != draws[7]).numpy().any()


@both
def test_exact_probabilities_are_those_of_the_full_softmax(kind):
    loss, full = kind(COUNTS, DIM, SAMPLES, "log_uniform"), ClassSoftmax(WORDS, DIM)
    tables = toy.make_tables(loss)
    assert tables.keys() == full.tables().keys()
    found_NV = toy.all_log_probabilities(loss, toy.hidden(), tables)
    np.testing.assert_allclose(np.exp(found_NV).sum(axis=1), 1, atol=1e-5)
    dense_NV = tf.nn.log_softmax(tf.matmul(toy.hidden(), tables["output"].values, transpose_b=True))
    np.testing.assert_allclose(found_NV, dense_NV, atol=1e-5)
    targets_N, gather = toy.targets(WORDS), toy.gather_from(tables)
    found_N = inference.log_probability(loss, toy.hidden(), targets_N, gather)
    np.testing.assert_allclose(found_N, tf.gather(dense_NV, targets_N, batch_dims=1), atol=1e-5)
    ids_NK, _ = inference.top_k(loss, toy.hidden(), 3, gather)
    np.testing.assert_array_equal(ids_NK, np.argsort(-dense_NV, axis=1)[:, :3])


@both
@samplers
@pytest.mark.parametrize("counts", [[5], [5, 5], [5, 0, 0], [1] * 9, [0, 0]], ids=str)
def test_small_vocabularies_and_counts_of_zero(kind, sampler, counts):
    loss = kind(np.array(counts), DIM, SAMPLES, sampler)
    table = toy.make_tables(loss)["output"]
    hidden_ND, targets_N = toy.hidden(), toy.targets(len(counts))
    rows, _ = looked_up(loss, toy.singly(hidden_ND, targets_N), table)
    with tf.GradientTape() as tape:
        tape.watch(rows.values_UD)
        total, _ = loss.loss(toy.singly(hidden_ND, targets_N), {"output": rows})
    by_rows = tape.gradient(total, rows.values_UD)
    assert np.isfinite(total) and np.isfinite(by_rows).all()
    if kind is SampledSoftmax and len(counts) == 1:  # a single word is certain
        np.testing.assert_allclose(by_rows, 0, atol=1e-5)


@both
def test_the_last_of_ten_million_words_has_a_share(kind):
    counts = np.maximum(10**9 // np.arange(1, 10**7 + 1), 1)
    for sampler in ("log_uniform", "unigram"):
        loss = kind(counts, 1, 100, sampler)
        rows = Rows(
            tf.zeros((102, 1)), tf.range(102), tf.concat([[0, 10**7 - 1], tf.range(100)], 0)
        )
        predictions = toy.singly(tf.ones((2, 1)), tf.constant([0, 10**7 - 1]))
        assert np.isfinite(loss.vector_losses(predictions, {"output": rows})).all()


@both
def test_products_in_bfloat16_come_close(kind):
    loss = kind(COUNTS, 32, SAMPLES, "unigram")
    table = toy.make_tables(loss)["output"]
    random = np.random.default_rng(0)
    hidden_ND = tf.constant(random.normal(size=(20, 32)), tf.bfloat16)
    targets_N = toy.targets(WORDS, count=20)
    rows, _ = looked_up(loss, toy.singly(hidden_ND, targets_N), table)
    narrow = loss.vector_losses(toy.singly(hidden_ND, targets_N), {"output": rows})
    wide = loss.vector_losses(
        toy.singly(tf.cast(hidden_ND, tf.float32), targets_N), {"output": rows}
    )
    assert narrow.dtype == tf.float32
    np.testing.assert_allclose(narrow, wide, rtol=0.05, atol=0.1)


FALLING = (10_000 / np.arange(1, 31)).astype(np.int64)


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
    share = FALLING**0.75 / (FALLING**0.75).sum() * groups * samples
    for found in draws(FALLING, 0.75, groups, samples, 20):
        assert (abs(np.bincount(found.ravel(), minlength=len(FALLING)) - share) < 2).all()


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
    cumulative = tf.constant(sampling.cumulative_distribution(FALLING, 0.75))
    one, same, other = (
        sampling.draw_stratified(cumulative, 4, 8, tf.constant(seed, tf.int64)).numpy()
        for seed in ([1, 2], [1, 2], [1, 3])
    )
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


@pytest.mark.parametrize(
    "size", [1, 33, 1000, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 3, 31, 32))]
)
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


observed_or_not = pytest.mark.parametrize("observed", [True, False])


def draw(shape, seed=0):
    return tf.constant(3 * np.random.default_rng(seed).normal(size=shape), tf.float32)


def plain(scores, weights, observed):
    sign = 1.0 if observed else -1.0
    return tf.reduce_sum(-weights * tf.math.log(tf.sigmoid(sign * scores)))


def value_and_gradient(loss, scores, *arguments):
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = 2.5 * loss(scores, *arguments)
    return value, tape.gradient(value, scores)


@observed_or_not
@pytest.mark.parametrize("shape", [(), (1,), (3, 4, 1), (1, 4, 5), (3, 4, 5)])
def test_value_and_gradient_are_those_of_the_plain_formula(observed, shape):
    scores, weights = draw((3, 4, 5)), tf.abs(draw(shape, seed=1))
    value, gradient = value_and_gradient(logistic, scores, weights, observed)
    expected, expected_gradient = value_and_gradient(plain, scores, weights, observed)
    assert value.shape == () and value.dtype == tf.float32
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-4, atol=1e-6)


@observed_or_not
def test_bfloat16_scores_are_summed_in_float32(observed):
    scores, weights = tf.cast(draw((64, 64)), tf.bfloat16), tf.abs(draw((64, 1), seed=1))
    value, gradient = value_and_gradient(logistic, scores, weights, observed)
    wide = tf.cast(scores, tf.float32)
    expected, expected_gradient = value_and_gradient(logistic, wide, weights, observed)
    assert value.dtype == tf.float32 and gradient.dtype == tf.bfloat16
    np.testing.assert_array_equal(value, expected)
    np.testing.assert_array_equal(gradient, tf.cast(expected_gradient, tf.bfloat16))


@observed_or_not
def test_extreme_scores_stay_finite(observed):
    scores = tf.constant([-80.0, 80.0])
    value, gradient = value_and_gradient(logistic, scores, tf.ones([]), observed)
    np.testing.assert_allclose(value, 2.5 * 80)
    np.testing.assert_allclose(gradient, [-2.5, 0] if observed else [0, 2.5], atol=1e-30)


def test_no_gradient_flows_to_the_weights():
    scores, weights = draw((3,)), tf.ones([3])
    with tf.GradientTape() as tape:
        tape.watch([scores, weights])
        value = logistic(scores, weights, True)
    assert tape.gradient(value, weights) is None


@observed_or_not
def test_the_gradient_alone_never_computes_the_loss(observed):
    def both_of(scores):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            value = logistic(scores, tf.ones([]), observed)
        return value, tape.gradient(value, scores)

    spec = tf.TensorSpec([3, 4])
    assert executed(tf.function(both_of).get_concrete_function(spec)).count("Softplus") == 1
    gradient = tf.function(lambda scores: both_of(scores)[1]).get_concrete_function(spec)
    assert executed(gradient).count("Sigmoid") == 1
    assert not {"Softplus", "Log", "Log1p", "Exp"} & set(executed(gradient))
