"""A whole training step, against dense autodiff and TensorFlow's dense optimizer."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from app.input.token_rows import PAD, decode
from app.optimizers.adagrad import adagrad, rowwise_adagrad
from app.optimizers.adam import lazy_adam
from app.optimizers.base import clip_by_global_norm
from app.optimizers.ftrl import ftrl
from app.optimizers.sgd import momentum, sgd
from app.tables.base import TableSpec
from app.training.step import train_function, train_step
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
from tests.reference.dense_optimizers import apply_adagrad
from tests.reference.graphs import executed
from tests.reference.tables import contents, random_tables

SIZE, DIM, RATE = 30, 6, 0.3
# Only these ids are ever read: neither tokens nor negatives are 0, or 25 and above.
USED = range(1, 25)
COUNTS = np.array([50 - id if id in USED else 0 for id in range(SIZE)])

both = pytest.mark.parametrize("name", MODELS)
pytestmark = pytest.mark.usefixtures("on_the_cpu")


def make_tables(optimizer, size=SIZE, dim=DIM):
    specs = dict.fromkeys(("input", "output"), TableSpec(size, dim, None))
    return random_tables(specs, optimizer.slots)


def run_step(model, tables, optimizer, batch, number, rate=RATE):
    number = tf.constant(number, tf.int64)
    return train_step(model, tables, optimizer, [batch], tf.constant(rate), number)


def assert_same_bits(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert one[name].tobytes() == other[name].tobytes(), name


def dense_loss(name, model, batch, tables):
    """The loss in the plainest terms, from whole tables."""
    mask_BTL = tf.constant(pairs_of(name, batch), tf.float32)
    ids_BL = decode(batch.data).ids
    centres_BT = ids_BL[:, WINDOW:-WINDOW]
    around_BT = tf.reduce_sum(mask_BTL, axis=2)
    samples_GKD = tf.gather(tables["output"], samples_of(model, batch))

    if name == "skipgram":
        hidden_BTD = tf.gather(tables["input"], centres_BT)
        contexts_BLD = tf.gather(tables["output"], ids_BL)
        scores_BTL = tf.einsum("btd,bld->btl", hidden_BTD, contexts_BLD)
        positive = tf.reduce_sum(mask_BTL * tf.nn.softplus(-scores_BTL))
        weights_BT = around_BT
    else:
        contexts_BLD = tf.gather(tables["input"], ids_BL)
        total_BTD = tf.einsum("btl,bld->btd", mask_BTL, contexts_BLD)
        hidden_BTD = total_BTD / tf.maximum(around_BT, 1)[:, :, None]
        targets_BTD = tf.gather(tables["output"], centres_BT)
        weights_BT = tf.cast(around_BT > 0, tf.float32)
        scores_BT = tf.reduce_sum(hidden_BTD * targets_BTD, axis=2)
        positive = tf.reduce_sum(weights_BT * tf.nn.softplus(-scores_BT))

    hidden_GND = tf.reshape(hidden_BTD, (-1, GROUP, DIM))
    scores_GNK = tf.einsum("gnd,gkd->gnk", hidden_GND, samples_GKD)
    weights_GN1 = tf.reshape(weights_BT, (-1, GROUP, 1)) * (PER_PAIR / SAMPLES)
    return positive + tf.reduce_sum(weights_GN1 * tf.nn.softplus(scores_GNK))


@both
def test_steps_equal_dense_autodiff_and_dense_adagrad(name):
    model, optimizer = make_model(name, COUNTS), adagrad(0.01)
    tables = make_tables(optimizer)
    dense = {table: tf.Variable(tables[table].values) for table in tables}
    accumulators = {table: tf.Variable(tf.fill([SIZE, DIM], 0.01)) for table in tables}
    for number in range(4):
        batch = make_batch(make_tokens(USED, seed=number), number)
        total, examples = run_step(model, tables, optimizer, batch, number + 1)

        with tf.GradientTape() as tape:
            loss = dense_loss(name, model, batch, dense)
        for table, gradient in tape.gradient(loss, dense).items():
            parts = {"rows": dense[table], "accumulator": accumulators[table]}
            apply_adagrad(parts, tf.convert_to_tensor(gradient), RATE, step=None)
        assert examples > 0
        np.testing.assert_allclose(total, loss, rtol=1e-5)
        for table in tables:
            found, expected = tables[table].values, dense[table]
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-5)
            slot = tables[table].slots["accumulator"].values
            np.testing.assert_allclose(slot, accumulators[table], rtol=1e-4, atol=1e-6)


@both
@pytest.mark.parametrize("optimizer", [momentum(), ftrl(), lazy_adam()], ids=["m", "f", "a"])
def test_padding_and_unused_negatives_move_no_row(name, optimizer):
    model, tables = make_model(name, COUNTS), make_tables(optimizer)
    for number in range(1, 4):
        batch = make_batch(make_tokens(range(25), seed=number), number)
        run_step(model, tables, optimizer, batch, number)
    tokens_BL = make_tokens([1, 2, 3])
    tokens_BL[2:] = PAD  # all centres of the second group of negatives
    batch = make_batch(tokens_BL, 4)
    unused = np.setdiff1d(np.arange(SIZE), [1, 2, 3, *samples_of(model, batch)[0]])
    asked = {table: np.intersect1d(ids, unused) for table, ids in model.lookups(batch).items()}
    assert asked["input"].tolist() == [0] and len(asked["output"]) > 2

    before = contents(tables)
    run_step(model, tables, optimizer, batch, 4)
    after = contents(tables)
    for part in before:
        assert before[part][asked[part.split(".")[0]]].any(axis=1).all()
        assert after[part][unused].tobytes() == before[part][unused].tobytes()
        assert (after[part] != before[part]).any()


@both
def test_gradients_are_clipped_before_the_update(name):
    model, batch, moves = make_model(name, COUNTS), make_batch(make_tokens(USED)), []
    for clip in (lambda gradients: gradients, lambda given: clip_by_global_norm(given, 0.5)):
        tables = make_tables(sgd())
        before = contents(tables)
        run_step(model, tables, dataclasses.replace(sgd(), clip=clip), batch, 1, rate=1.0)
        after = contents(tables)
        moves.append(np.concatenate([after[table] - before[table] for table in tables]))
    free, clipped = moves
    assert np.linalg.norm(free) > 5
    np.testing.assert_allclose(np.linalg.norm(clipped), 0.5, rtol=1e-4)
    np.testing.assert_allclose(clipped, free * 0.5 / np.linalg.norm(free), rtol=1e-3, atol=1e-5)


@both
def test_the_optimizer_is_told_the_number_of_the_step(name):
    numbers = []

    def rule(rows_UD, gradients_UD, state, rate, step):
        tf.py_function(lambda step: numbers.append(int(step)), [step], [])
        assert step.dtype == tf.int64
        return tf.zeros_like(rows_UD), state

    optimizer = dataclasses.replace(sgd(), rule=rule)
    tables = make_tables(optimizer)
    train = train_function(make_model(name, COUNTS), tables, optimizer, seed=1)
    tokens_SBL = np.stack([make_tokens(USED, seed=number) for number in range(3)])
    train(tf.constant(tokens_SBL), tf.constant(2**33, tf.int64), tf.constant(RATE))
    assert sorted(numbers) == sorted(2 * [2**33 + 1, 2**33 + 2, 2**33 + 3])


def trained(name, tokens_SBL, calls, size=SIZE, dim=DIM, counts=COUNTS, first=0):
    """Tables and slots after all steps, made in so many equal calls, and the first loss."""
    optimizer = rowwise_adagrad(0.01)
    tables = make_tables(optimizer, size, dim)
    train = train_function(make_model(name, counts, dim), tables, optimizer, seed=1)
    losses = []
    for part in np.split(tokens_SBL, calls):
        loss = train(tf.constant(part), tf.constant(first, tf.int64), tf.constant(RATE))
        losses.append([value.numpy() for value in loss])
        first += len(part)
    return contents(tables), losses[0]


@pytest.mark.slow
@both
def test_steps_in_one_call_equal_the_same_steps_one_by_one_bit_for_bit(name):
    tokens_SBL = np.stack([make_tokens(USED, seed=number) for number in range(4)])
    one, loss = trained(name, tokens_SBL, calls=2, first=2**33)
    others, other_loss = trained(name, tokens_SBL, calls=4, first=2**33)
    assert_same_bits(one, others)
    assert loss == other_loss


@both
def test_the_number_of_the_step_decides_its_draws(name):
    tokens_SBL = make_tokens(USED)[None]
    one, other = (trained(name, tokens_SBL, 1, first=first)[0] for first in (0, 1))
    assert (one["input"] != other["input"]).any()


@both
def test_two_runs_of_one_seed_are_equal_bit_for_bit(name):
    assert tf.config.threading.get_inter_op_parallelism_threads() != 1
    counts = np.arange(400, 0, -1)
    tokens_SBL = np.stack(
        [make_tokens(range(400), size=16, centres=32, seed=number) for number in range(16)]
    )
    runs = [trained(name, tokens_SBL, 8, 400, 48, counts)[0] for _ in range(2)]
    assert_same_bits(*runs)


@pytest.mark.slow
@both
def test_only_the_first_steps_loss_is_computed(name):
    model, optimizer = make_model(name, COUNTS), sgd()
    tables = make_tables(optimizer)
    train = train_function(model, tables, optimizer, seed=1)
    operations = executed(
        train.get_concrete_function(
            tf.TensorSpec([5, 4, 14], tf.int32), tf.TensorSpec([], tf.int64), tf.TensorSpec([])
        )
    )
    # Of observed pairs and of negatives; XLA has the gradient of the pairs of CBOW.
    assert operations.count("Softplus") == 2
    assert operations.count("Sigmoid") == {"skipgram": 2, "cbow": 1}[name] * 5
    assert operations.count("ResourceScatterUpdate") == 2 * 5
