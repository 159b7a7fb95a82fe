"""A whole step whose loss is streamed, against dense autodiff and dense Adagrad."""

import dataclasses
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from app.input.token_rows import decode
from app.losses.classes.class_softmax import ClassSoftmax
from app.losses.classes.classes import partition
from app.models.base import Outcome
from app.models.cbow import Cbow
from app.models.skipgram import SkipGram
from app.optimizers.adagrad import adagrad
from app.optimizers.base import clip_by_row_norm
from app.optimizers.sgd import sgd
from app.tables import rounding
from app.tables.device import DeviceTable
from app.tables.initial import Uniform
from app.training.step import train_function, train_step
from app.types import Batch
from tests.losses.classes.test_class_softmax import dense_log_probability
from tests.losses.toy import counts, make_tables
from tests.reference import words
from tests.reference.batches import WINDOW, make_batch, make_tokens, reach_of
from tests.reference.dense_optimizers import apply_adagrad

SIZE, DIM, RATE = 30, 5, 0.3
MODELS = {"skipgram": SkipGram, "cbow": Cbow}

both = pytest.mark.parametrize("name", MODELS)
pytestmark = pytest.mark.usefixtures("on_the_cpu")


def make_job(name, levels=2, tile=0, dtype=tf.float32, slots=None):
    starts = partition(counts(SIZE), levels, "equal_size", 6) if levels > 1 else ()
    with mock.patch("app.losses.classes.class_softmax._TILE", DIM * tile or 8 << 20):
        loss = ClassSoftmax(SIZE, DIM, starts)
    options = {"draws_contexts": True} if name == "skipgram" else {}
    model = MODELS[name](SIZE, DIM, WINDOW, loss, seed=1, dtype=dtype, **options)
    random = np.random.default_rng(0)
    inputs_VD = random.normal(size=(SIZE, DIM)).astype(np.float32)
    tables = {"input": DeviceTable(SIZE, DIM, lambda shape: tf.constant(inputs_VD), slots=slots)}
    return model, tables | make_tables(loss, slots=slots), starts


def dense_loss(name, batch, tables, starts):
    """The loss in the plainest terms, from whole tables."""
    mask_BTL = tf.constant(words.pairs(batch.data.numpy(), reach_of(batch)), tf.float32)
    ids_BL = decode(batch.data).ids
    centres_BT = ids_BL[:, WINDOW:-WINDOW]
    size, centres, length = mask_BTL.shape
    if name == "skipgram":
        hidden_ND = tf.reshape(tf.gather(tables["input"], centres_BT), (-1, DIM))
        log_BTV = tf.reshape(dense_log_probability(starts, tables, hidden_ND), (size, centres, -1))
        spread_BTL = tf.broadcast_to(ids_BL[:, None], (size, centres, length))
        return -tf.reduce_sum(mask_BTL * tf.gather(log_BTV, spread_BTL, batch_dims=2))
    around_BT1 = tf.reduce_sum(mask_BTL, axis=2, keepdims=True)
    mean_BTD = tf.matmul(mask_BTL, tf.gather(tables["input"], ids_BL)) / tf.maximum(around_BT1, 1)
    log_NV = dense_log_probability(starts, tables, tf.reshape(mean_BTD, (-1, DIM)))
    log_N = tf.gather(log_NV, tf.reshape(centres_BT, [-1]), batch_dims=1)
    return -tf.reduce_sum(tf.cast(tf.reshape(around_BT1, [-1]) > 0, tf.float32) * log_N)


@pytest.mark.parametrize(
    ("name", "levels", "tile"),
    [("skipgram", 2, 3), ("cbow", 1, 0), ("cbow", 1, 7), ("cbow", 2, 0), ("cbow", 3, 0)],
)
def test_steps_equal_dense_autodiff_and_dense_adagrad(name, levels, tile):
    optimizer = adagrad(0.01)
    model, tables, starts = make_job(name, levels, tile, slots=optimizer.slots)
    dense = {table: tf.Variable(tables[table].values) for table in tables}
    accumulators = {
        table: tf.Variable(tf.fill(values.shape, 0.01)) for table, values in dense.items()
    }
    compiled = train_function(model, tables, optimizer, seed=1)
    for number in range(3):
        batch = make_batch(make_tokens(range(SIZE), seed=number), number)
        with tf.GradientTape() as tape:
            loss = dense_loss(name, batch, dense, starts)
        gradients = tape.gradient(loss, dense)
        total, examples = compiled(
            batch.data[None], tf.constant(number, tf.int64), tf.constant(RATE)
        )
        for table, gradient in gradients.items():
            parts = {"rows": dense[table], "accumulator": accumulators[table]}
            apply_adagrad(parts, tf.convert_to_tensor(gradient), RATE, step=None)
        assert examples > 0
        np.testing.assert_allclose(total, loss, rtol=1e-5)
        for table in tables:
            np.testing.assert_allclose(
                tables[table].values, dense[table], rtol=1e-4, atol=5e-5, err_msg=table
            )


@both
def test_products_in_bfloat16_come_close(name):
    changes = {}
    for dtype in (tf.float32, tf.bfloat16):
        model, tables, _ = make_job(name, dtype=dtype)
        before = {table: values.values.numpy() for table, values in tables.items()}
        batch = make_batch(make_tokens(range(SIZE)))
        train_step(model, tables, sgd(), [batch], tf.constant(RATE), tf.constant(1, tf.int64))
        changes[dtype] = {name: tables[name].values.numpy() - before[name] for name in tables}
    for table, expected in changes[tf.float32].items():
        found = changes[tf.bfloat16][table]
        assert np.linalg.norm(found - expected) < 0.03 * np.linalg.norm(expected), table


def test_only_rows_of_touched_classes_change():
    model, tables, (starts,) = make_job("cbow")
    before = {name: table.values.numpy() for name, table in tables.items()}
    batch = make_batch(make_tokens([1, 2, 17]))
    train_step(model, tables, sgd(), [batch], tf.constant(RATE), tf.constant(1, tf.int64))
    changed = np.flatnonzero((tables["output"].values.numpy() != before["output"]).any(axis=1))
    touched = {int(group) for group in np.searchsorted(starts, [1, 2, 17], side="right") - 1}
    rows = [row for group in touched for row in range(*starts[group : group + 2])]
    np.testing.assert_array_equal(changed, rows)


def test_streamed_rows_are_clipped_by_row():
    model, tables, _ = make_job("cbow")
    optimizer = dataclasses.replace(sgd(), clip=lambda gradients: clip_by_row_norm(gradients, 1e-3))
    before = {name: table.values.numpy() for name, table in tables.items()}
    batch = make_batch(make_tokens(range(SIZE)))
    train_step(model, tables, optimizer, [batch], tf.constant(1.0), tf.constant(1, tf.int64))
    for name, table in tables.items():
        moved = np.linalg.norm(table.values.numpy() - before[name], axis=1)
        assert 0.5e-3 < moved.max() < 1.001e-3, name


def test_state_is_kept_and_not_trained():
    class Counting:
        """Its state counts the steps."""

        def lookups(self, batch):
            return {"state": tf.range(2), "weight": tf.constant([0])}

        def loss(self, batch, rows):
            state = rows["state"].values_UD
            total = tf.reduce_sum(rows["weight"].values_UD) * tf.reduce_sum(state)
            return Outcome(total, tf.constant(1.0), state={"state": state + 1.0})

    tables = {"state": DeviceTable(2, 1, tf.zeros), "weight": DeviceTable(1, 1, tf.ones)}
    for number in (1, 2, 3):
        number = tf.constant(number, tf.int64)
        train_step(Counting(), tables, sgd(), [Batch(None, None)], tf.constant(0.1), number)
    np.testing.assert_array_equal(tables["state"].values, [[3.0], [3.0]])
    np.testing.assert_allclose(tables["weight"].values, [[1 - 0.1 * (0 + 2 + 4)]], rtol=1e-6)
    assert not tables["state"].slots


def test_rows_of_bfloat16_are_those_without_xla_if_the_draws_are_equal(monkeypatch):
    """XLA writes rows in other blocks and another order, and draws are by block and place."""

    def round_alike(values_UD, seed):
        rows, columns = tf.unstack(tf.shape(values_UD))
        drawn_U, drawn_D = tf.zeros([rows], tf.uint32), tf.range(columns)
        return rounding._to_bfloat16(values_UD, drawn_U, tf.cast(drawn_D, tf.uint32))

    monkeypatch.setitem(rounding._STOCHASTIC, tf.bfloat16, round_alike)
    trained, optimizer = [], adagrad(0.01)
    options = {"dtype": tf.bfloat16, "rounding": "stochastic", "slots": optimizer.slots}
    for by_xla in (False, True):
        model, *_ = make_job("cbow", levels=1)
        tables = {
            name: DeviceTable(spec.rows, spec.columns, Uniform(0.5, 1), **options)
            for name, spec in model.tables().items()
        }
        compiled = train_function(model, tables, optimizer, seed=1, by_xla=by_xla)
        for number in range(2):
            data_S = tf.constant(make_tokens(range(SIZE), seed=number)[np.newaxis])
            compiled(data_S, tf.constant(number, tf.int64), tf.constant(RATE))
        assert not by_xla or compiled.is_by_xla
        trained.append(tables)
    for name, table in trained[0].items():
        expected, found = table.values.numpy(), trained[1][name].values.numpy()
        assert found.dtype == tf.bfloat16.as_numpy_dtype
        differ = (found != expected).mean()
        assert differ < 0.02, (name, differ)  # sums of another order, beside a limit
        np.testing.assert_allclose(found.astype("f"), expected.astype("f"), rtol=2**-7)
