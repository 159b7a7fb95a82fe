"""Micro-batches that share a step, against one batch of all; and gradients as one vector."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from app.distributed.exchange import FLAGS
from app.distributed.replicas import pack, packed_size, unpack
from app.input.token_rows import PAD
from app.losses.classes.class_softmax import ClassSoftmax
from app.losses.tree.hierarchical_softmax import HierarchicalSoftmax
from app.models.cbow import Cbow
from app.models.language_model import LanguageModel, gru
from app.models.row_lists import SubwordRows
from app.optimizers.adagrad import adagrad, rowwise_adagrad
from app.optimizers.adam import lazy_adam
from app.optimizers.base import clip_by_row_norm
from app.tables.device import DeviceTable
from app.training.gradients import RowGradients, StepGradients, add_gradients, compute_gradients
from app.training.step import apply_gradients, split_steps, train_function, train_step
from app.types import NgramRule
from tests.losses.toy import counts
from tests.reference.batches import WINDOW, make_batch, make_model, make_tokens
from tests.reference.dense_optimizers import apply_adagrad
from tests.reference.tables import contents, random_tables
from tests.training.test_step import COUNTS, DIM, RATE, USED, dense_loss, make_tables

SIZE = 30
SUBWORDS = SubwordRows([f"word{number}" for number in range(SIZE)], NgramRule(2, 3, 40))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["skipgram", "cbow"])
@pytest.mark.parametrize("micro", [2, 3])
def test_micro_batches_equal_dense_autodiff_of_them_all(name, micro):
    """Rows come in several of them, and one of them is nothing but padding."""
    model, optimizer = make_model(name, COUNTS), adagrad(0.01)
    tables = make_tables(optimizer)
    dense = {table: tf.Variable(tables[table].values) for table in tables}
    accumulators = {table: tf.Variable(tf.fill([SIZE, DIM], 0.01)) for table in tables}
    train = train_function(model, tables, optimizer, seed=1, micro_batches=micro)
    tokens_NL = np.concatenate([make_tokens(USED, seed=part) for part in range(micro)])
    tokens_NL[-4:] = PAD
    data = tf.constant(tokens_NL)[None]
    total, examples = train(data, tf.constant(5, tf.int64), tf.constant(RATE))

    (batches,) = split_steps(data, tf.constant(5, tf.int64), 1, micro)
    assert [int(batch.seed[1]) for batch in batches] == [5 * micro + part for part in range(micro)]
    (own,) = split_steps(data[:, 4:], tf.constant(5, tf.int64), 1, micro, held=range(1, micro))
    for batch, expected in zip(own, batches[1:], strict=True):  # as a process that has no others
        assert batch.part == expected.part and tf.reduce_all(batch.seed == expected.seed)
        np.testing.assert_array_equal(batch.data, expected.data)
    with tf.GradientTape() as tape:
        loss = tf.add_n([dense_loss(name, model, batch, dense) for batch in batches])
    for table, gradient in tape.gradient(loss, dense).items():
        parts = {"rows": dense[table], "accumulator": accumulators[table]}
        apply_adagrad(parts, tf.convert_to_tensor(gradient), RATE, step=None)
    assert examples > 0
    np.testing.assert_allclose(total, loss, rtol=1e-5)
    for table in tables:
        np.testing.assert_allclose(tables[table].values, dense[table], rtol=1e-5, atol=2e-5)


pytestmark = pytest.mark.usefixtures("on_the_cpu")


def with_tables(model, optimizer):
    return model, random_tables(model.tables(), optimizer.slots)


def make_streamed(loss, optimizer):
    return with_tables(Cbow(SIZE, DIM, WINDOW, loss, seed=1), optimizer)


@pytest.mark.parametrize("optimizer", [adagrad(0.01), rowwise_adagrad(0.01), lazy_adam()])
@pytest.mark.parametrize(
    "make",
    [
        lambda optimizer: (make_model("skipgram", COUNTS), make_tables(optimizer)),
        lambda optimizer: make_streamed(HierarchicalSoftmax(counts(SIZE), DIM), optimizer),
        lambda optimizer: make_streamed(ClassSoftmax(SIZE, DIM), optimizer),
        lambda optimizer: with_tables(make_model("skipgram", COUNTS, subwords=SUBWORDS), optimizer),
    ],
    ids=["sampled", "hierarchical", "softmax", "partitions"],
)
def test_collected_gradients_change_rows_as_a_step_in_place_does(make, optimizer):
    batch, rate, number = make_batch(make_tokens(USED)), tf.constant(RATE), tf.constant(1, tf.int64)
    found = []
    for way in ("in place", "computed, then applied"):
        model, tables = make(optimizer)
        if way == "in place":
            loss, examples = train_step(model, tables, optimizer, [batch], rate, number)
        else:
            both = compute_gradients(
                model,
                lambda name, ids_U, tables=tables: tables[name].gather(ids_U),
                [batch],
            )
            loss, examples = both.loss, both.examples
            apply_gradients(tables, optimizer, both, rate, number)
        found.append((float(loss), float(examples), contents(tables)))
    (loss, examples, one), (other_loss, other_examples, other) = found
    assert examples == other_examples > 0
    np.testing.assert_allclose(loss, other_loss, rtol=1e-6)
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-5, atol=1e-6, err_msg=name)


def test_gradients_are_clipped_after_they_are_summed():
    """Two halves that cancel out leave nothing to clip."""
    seen = []

    def clip(found):
        seen.append(found)
        return clip_by_row_norm(found, 1.0)

    optimizer = dataclasses.replace(adagrad(0.01), clip=clip)
    ids_U = tf.constant([3, 1])
    halves = [
        StepGradients(
            tf.zeros([]), tf.zeros([]), {"input": RowGradients(ids_U, sign * tf.ones((2, DIM)))}, {}
        )
        for sign in (10.0, -10.0)
    ]
    tables = make_tables(optimizer)
    before = contents(tables)
    apply_gradients(
        tables, optimizer, add_gradients(halves), tf.constant(0.1), tf.constant(1, tf.int64)
    )
    assert len(seen) == 1 and not seen[0]["input"].numpy().any()
    for name, values in contents(tables).items():
        assert values.tobytes() == before[name].tobytes()


@pytest.mark.slow
def test_the_state_of_each_micro_batch_is_its_own():
    """Two streams in one batch, and one in each of two: the states and the losses are the same."""
    tokens_SBL = np.random.default_rng(0).integers(0, 9, (3, 2, 6)).astype(np.int32)
    tokens_SBL[0, :, 0] = ~tokens_SBL[0, :, 0]
    found = []
    for micro in (1, 2):
        loss = ClassSoftmax(9, 5)
        model = LanguageModel(
            size=9, dim=3, cell=gru(), hidden=4, streams=2 // micro, output=loss, priors={},
            seed=1, micro_batches=micro,
        )  # fmt: skip
        optimizer = adagrad(0.1)
        tables = {
            name: DeviceTable(spec.rows, spec.columns, spec.initial, slots=optimizer.slots)
            for name, spec in model.tables().items()
        }
        train = train_function(model, tables, optimizer, seed=1, micro_batches=micro)
        told = train(tf.constant(tokens_SBL), tf.constant(0, tf.int64), tf.constant(0.1))
        found.append([float(value) for value in told] + [contents(tables)])
    assert found[0][1] == found[1][1] == 10
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-6)
    for name in found[0][2]:
        np.testing.assert_allclose(found[0][2][name], found[1][2][name], rtol=1e-5, atol=1e-6)


def make_rows(ids, width, dtype=tf.int32, seed=0):
    values_UD = np.random.default_rng(seed).normal(size=(len(ids), width)).astype(np.float32)
    return RowGradients(tf.constant(ids, dtype), tf.constant(values_UD))


def test_vectors_of_several_replicas_hold_the_sum_of_what_they_found():
    replicas = [
        StepGradients(
            tf.constant(1.5), tf.constant(4.0),
            {"input": make_rows([7, 2], 3, seed=1), "output": make_rows([1], 2, tf.int64)},
            {"state": make_rows([0], 4)},
        ),
        StepGradients(  # nothing of one table
            tf.constant(0.5), tf.constant(0.0),
            {"input": make_rows([2, 2**31 - 1, 7], 3), "output": make_rows([], 2, tf.int64)},
            {"state": make_rows([1], 4)},
        ),
    ]  # fmt: skip
    flags = [[0.0, 1.0], [1.0, 1.0]]

    @tf.function(autograph=False)
    def exchanged():
        size = tf.constant(30)  # more than either of them needs
        both = zip(replicas, flags, strict=True)
        vectors = [pack(one, tf.constant(flag), size) for one, flag in both]
        return unpack(tf.concat(vectors, axis=0), 2, replicas[0])

    found, sums = exchanged()
    assert (float(found.loss), float(found.examples)) == (2.0, 4.0)
    assert sums.numpy().tolist() == [1.0, 2.0]
    expected = {}
    for one in replicas:
        for name, (ids_U, values_UD) in (one.gradients | one.state).items():
            for id, row in zip(ids_U.numpy(), values_UD.numpy(), strict=True):
                rows = expected.setdefault(name, {})
                rows[id] = rows.get(id, 0) + row
    for name, (ids_U, values_UD) in (found.gradients | found.state).items():
        assert ids_U.dtype == (tf.int64 if name == "output" else tf.int32)
        assert sorted(ids_U.numpy()) == sorted(expected[name])
        for id, row in zip(ids_U.numpy(), values_UD.numpy(), strict=True):
            np.testing.assert_allclose(row, expected[name][id], rtol=1e-6)


def test_a_vector_is_as_long_as_its_rows():
    """However many rows the table has."""
    found = StepGradients(tf.zeros([]), tf.zeros([]), {"input": make_rows([5, 99_999_999], 8)}, {})
    size = int(packed_size([8], [tf.constant(2)]))
    assert pack(found, tf.zeros([FLAGS]), size).shape == [size] == [1 + 2 + FLAGS + 2 + 2 * 8]
