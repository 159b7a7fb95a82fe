"""Skip-gram and CBOW against the reference, given the windows and the negatives that they drew."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from app.input.token_rows import PAD, decode
from app.losses.tree.hierarchical_softmax import HierarchicalSoftmax
from app.models.base import draw_seed
from app.models.word_model import draw_contexts, weigh_contexts
from app.tables.row_reads import unique
from app.types import Rows
from tests.losses import toy
from tests.reference import words
from tests.reference.batches import (
    GROUP,
    MODELS,
    PER_PAIR,
    SAMPLES,
    WINDOW,
    loss_and_gradients,
    make_batch,
    make_model,
    make_tokens,
    pairs_of,
    reach_of,
    samples_of,
)

SIZE, DIM = 30, 6
COUNTS = np.arange(SIZE, 0, -1)

both = pytest.mark.parametrize("name", MODELS)


def random_tables(seed=0):
    random = np.random.default_rng(seed)
    return {
        name: random.normal(size=(SIZE, DIM)).astype(np.float32) for name in ("input", "output")
    }


def reference(name, model, batch, tables):
    inputs, outputs = (tables[table].astype(np.float64) for table in ("input", "output"))
    tokens_BL = batch.data.numpy()
    samples_GK = samples_of(model, batch)
    return MODELS[name][1](inputs, outputs, tokens_BL, pairs_of(name, batch), samples_GK, PER_PAIR)


@both
@pytest.mark.parametrize("step", range(3))
def test_loss_and_row_gradients_equal_the_reference(name, step):
    model, tables = make_model(name, COUNTS), random_tables(step)
    batch = make_batch(make_tokens(range(SIZE), seed=step), step)
    total, examples, gradients = loss_and_gradients(model, batch, tables)
    loss, count, d_inputs, d_outputs = reference(name, model, batch, tables)
    assert (total.dtype, total.shape) == (examples.dtype, examples.shape) == (tf.float32, ())
    np.testing.assert_allclose(total, loss, rtol=1e-5)
    assert count > 0
    np.testing.assert_allclose(examples, count, rtol=1e-5)
    np.testing.assert_allclose(gradients["input"], d_inputs, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gradients["output"], d_outputs, rtol=1e-4, atol=1e-5)


@both
def test_products_in_bfloat16_come_close(name):
    batch, tables = make_batch(make_tokens(range(SIZE))), random_tables()
    model = make_model(name, COUNTS, dtype=tf.bfloat16)
    total, _, gradients = loss_and_gradients(model, batch, tables)
    loss, _, d_inputs, d_outputs = reference(name, model, batch, tables)
    np.testing.assert_allclose(total, loss, rtol=0.01)
    for found, expected in ((gradients["input"], d_inputs), (gradients["output"], d_outputs)):
        assert np.linalg.norm(found - expected) < 0.02 * np.linalg.norm(expected)


@both
@pytest.mark.parametrize(
    "tokens",
    [np.full((4, 14), PAD), ~(np.arange(4 * 14).reshape(4, 14) % SIZE)],
    ids=["pad", "one"],
)
def test_padding_and_documents_of_one_word_teach_nothing(name, tokens):
    batch = make_batch(tokens.astype(np.int32))
    total, examples, gradients = loss_and_gradients(
        make_model(name, COUNTS), batch, random_tables()
    )
    assert total == examples == 0
    assert not gradients["input"].any() and not gradients["output"].any()


@both
def test_lookups_are_functions_of_seed_and_step(name):
    model, tokens = make_model(name, COUNTS), make_tokens(range(SIZE))
    one, same, later, reseeded = (
        model.lookups(make_batch(tokens, step, seed))["output"].numpy()
        for step, seed in ((0, 1), (0, 1), (1, 1), (0, 2))
    )
    np.testing.assert_array_equal(one, same)
    assert (one != later).any() and (one != reseeded).any()


def test_every_kind_of_draw_has_its_own_seed():
    batch = make_batch(make_tokens([1]))
    seeds = [draw_seed(batch, stream).numpy().tolist() for stream in ("window", "negatives")]
    assert seeds[0] != seeds[1]


@both
def test_tables_start_as_word2vecs(name):
    tables = make_model(name, COUNTS, dim=50).tables()
    assert {key: (spec.rows, spec.columns) for key, spec in tables.items()} == {
        "input": (SIZE, 50),
        "output": (SIZE, 50),
    }
    inputs = tables["input"].initial((SIZE, 50)).numpy()
    assert inputs.dtype == np.float32 and abs(inputs).max() <= 0.5 / 50
    np.testing.assert_allclose(inputs.std(), 1 / 50 / np.sqrt(12), rtol=0.05)
    np.testing.assert_array_equal(tables["output"].initial((SIZE, 50)), np.zeros((SIZE, 50)))


def test_initial_values_are_a_function_of_the_seed():
    model = make_model("skipgram", COUNTS)
    specs = [dataclasses.replace(model, seed=seed).tables()["input"] for seed in (1, 1, 2)]
    one, same, other = (spec.initial((4, 3)).numpy() for spec in specs)
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


@both
def test_groups_of_centres_share_their_samples(name):
    model, tokens = make_model(name, COUNTS), make_tokens(range(SIZE))
    output = model.lookups(make_batch(tokens))["output"]
    places = {"skipgram": tokens.size, "cbow": tokens[:, WINDOW:-WINDOW].size}[name]
    assert output.shape == (places + 32 // GROUP * SAMPLES,)


SEED = tf.constant([1, 2], tf.int64)


def open_row(size, centres, window):
    """Rows that are full and of one document."""
    return decode(tf.ones([size, centres + 2 * window], tf.int32))


@pytest.mark.parametrize("step", range(5))
def test_contexts_are_those_of_the_reference(step):
    batch = make_batch(make_tokens(range(1, 9), size=6, seed=step), step)
    found = draw_contexts(decode(batch.data), WINDOW, draw_seed(batch, "window"))
    assert found.dtype == tf.float32
    np.testing.assert_array_equal(found, words.pairs(batch.data.numpy(), reach_of(batch)))
    assert 0 < found.numpy().sum() < 2 * reach_of(batch).sum()


@pytest.mark.parametrize("step", range(3))
def test_the_weights_of_pairs_are_those_of_the_reference(step):
    batch = make_batch(make_tokens(range(1, 9), size=6, seed=step), step)
    found = weigh_contexts(decode(batch.data), WINDOW)
    assert found.dtype == tf.float32
    np.testing.assert_allclose(found, words.weights(batch.data.numpy(), WINDOW), rtol=1e-6)
    assert found.numpy().any()


@pytest.mark.slow
def test_pairs_are_drawn_as_often_as_their_weights_say():
    tokens = decode(make_batch(make_tokens(range(1, 9), seed=1)).data)
    drawn = [draw_contexts(tokens, WINDOW, tf.constant([1, step])) for step in range(2_000)]
    np.testing.assert_allclose(np.mean(drawn, axis=0), weigh_contexts(tokens, WINDOW), atol=0.05)


def test_reach_is_uniform_over_1_to_the_window():
    window = 5
    reach = draw_contexts(open_row(64, 128, window), window, SEED).numpy().sum(axis=2) / 2
    counts = np.bincount(reach.astype(int).ravel(), minlength=window + 1)
    assert counts[0] == 0 and len(counts) == window + 1
    assert stats.chisquare(counts[1:]).pvalue > 1e-3


# Skip-gram whose loss is a tree: words of the contexts predict the centres, in shorter rows.


@pytest.mark.slow
@pytest.mark.parametrize("group", [2, 8, 16])
def test_each_pair_predicts_its_centre_once(group):
    with tf.device("CPU:0"):
        output = HierarchicalSoftmax(COUNTS, DIM)
        output.group_words = group
        model = dataclasses.replace(make_model("skipgram", COUNTS), output=output)
        batch, tables = make_batch(make_tokens(range(SIZE))), toy.make_tables(output)
        values_VD = np.random.default_rng(3).normal(size=(SIZE, DIM)).astype(np.float32)
        ids_U, inverse_N = unique(model.lookups(batch)["input"])
        rows = {"input": Rows(tf.gather(values_VD, ids_U), inverse_N)}
        _, examples, parts, _ = model.loss(batch, rows)
        found = [toy.stream.differentiate(part, toy.gather_from(tables), ignore) for part in parts]

    weights_BTL = pairs_of("skipgram", batch)
    log_VV = toy.all_log_probabilities(output, tf.constant(values_VD), tables)
    tokens_BL = batch.data.numpy()
    ids_BL = np.where(tokens_BL < 0, ~tokens_BL, tokens_BL)
    window = model.window
    expected = sum(
        -weight * log_VV[ids_BL[b, i], ids_BL[b, t + window]]
        for (b, t, i), weight in np.ndenumerate(weights_BTL)
        if weight
    )
    np.testing.assert_allclose(sum(float(loss) for loss, *_ in found), expected, rtol=1e-5)
    np.testing.assert_allclose(examples, weights_BTL.sum(), rtol=1e-5)


def ignore(name, ids_U, rows_UD, gradients_UD):
    """Update nothing."""
