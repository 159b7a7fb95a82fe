"""Skip-gram and CBOW against the reference, given the windows and the negatives that they drew."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from app.input.token_rows import PAD
from app.losses import sampling
from app.losses.negative_sampling import NegativeSampling
from app.models.base import draw_seed
from app.tables.row_reads import unique
from app.types import Rows
from tests.reference.batches import (
    GROUP,
    MODELS,
    PER_PAIR,
    SAMPLES,
    WINDOW,
    make_batch,
    make_model,
    make_tokens,
    pairs_of,
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


def loss_and_gradients(model, batch, tables):
    """The loss, the examples, and the gradients as dense tables."""
    wanted = {name: unique(ids) for name, ids in model.lookups(batch).items()}
    values = {name: tf.gather(tables[name], ids_U) for name, (ids_U, _) in wanted.items()}
    with tf.GradientTape() as tape:
        tape.watch(values)
        rows = {name: Rows(values[name], inverse_N) for name, (_, inverse_N) in wanted.items()}
        total, examples, *_ = model.loss(batch, rows)
    dense = {name: np.zeros((SIZE, DIM), np.float32) for name in tables}
    for name, gradient in tape.gradient(total, values).items():
        dense[name][wanted[name][0].numpy()] = gradient
    return total, examples, dense


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


def test_negatives_follow_the_counts():
    loss = NegativeSampling(COUNTS, DIM, 0.75, sharing=4, samples=SAMPLES, negatives=1)
    targets = tf.zeros((4 * 2000, 1), tf.int32)
    drawn = loss.lookups(targets, 4 * 2000, tf.constant([1, 2]))["output"][4 * 2000 :]
    assert drawn.shape == (2000 * SAMPLES,)
    share = np.diff(sampling.cumulative_distribution(COUNTS, 0.75), prepend=0)
    found = np.bincount(drawn, minlength=SIZE)
    assert (abs(found - share * len(drawn)) < 2).all()


@both
def test_groups_of_centres_share_their_samples(name):
    model, tokens = make_model(name, COUNTS), make_tokens(range(SIZE))
    output = model.lookups(make_batch(tokens))["output"]
    places = {"skipgram": tokens.size, "cbow": tokens[:, WINDOW:-WINDOW].size}[name]
    assert output.shape == (places + 32 // GROUP * SAMPLES,)
