"""Adaptive softmax against PyTorch's formulas over whole tables."""

import itertools
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from app.losses import inference, stream
from app.losses.classes.adaptive_softmax import AdaptiveSoftmax, choose_cutoffs
from app.optimizers.sgd import sgd
from app.tables.device import DeviceTable
from app.tables.row_reads import unique
from app.training.step import train_step
from app.types import Batch, Rows
from tests.losses import toy

WORDS, COLUMNS = 60, 40
COUNTS = toy.counts(WORDS)
every_cut = pytest.mark.parametrize("cutoffs", [(), (7,), (1, 59), (4, 10, 30)], ids=str)
tiled = pytest.mark.parametrize("tile", [0, 3])


def hidden(count=12, seed=1):
    values = np.random.default_rng(seed).normal(size=(count, COLUMNS))
    return tf.constant(values / np.sqrt(COLUMNS), tf.float32)


def make(cutoffs=(4, 10, 30), tile=0, counts=COUNTS):
    with mock.patch("app.losses.classes.class_softmax._TILE", COLUMNS * tile or 8 << 20):
        loss = AdaptiveSoftmax(counts, COLUMNS, cutoffs, divisor=2)
    return loss, toy.make_tables(loss)


def dense_log_probability(cutoffs, tables, hidden_ND):
    """(N, V), as torch.nn.AdaptiveLogSoftmaxWithLoss.log_prob; differentiable."""
    head_NH = tf.nn.log_softmax(tf.matmul(hidden_ND, tables["head"], transpose_b=True))
    first = head_NH.shape[1] - len(cutoffs)
    found = [head_NH[:, :first]]
    for number in range(1, len(cutoffs) + 1):
        low_ND = tf.matmul(hidden_ND, tables[f"projection{number}"], transpose_b=True)
        scores_NM = tf.matmul(low_ND, tables[f"tail{number}"], transpose_b=True)
        cluster_N1 = head_NH[:, first + number - 1, tf.newaxis]
        found.append(cluster_N1 + tf.nn.log_softmax(scores_NM))
    return tf.concat(found, axis=1)


def values(tables):
    return {name: tf.constant(table.values) for name, table in tables.items()}


@every_cut
@tiled
def test_probabilities_equal_the_dense_construction_and_sum_to_one(cutoffs, tile):
    loss, tables = make(cutoffs, tile)
    found_NV = toy.all_log_probabilities(loss, hidden(), tables)
    np.testing.assert_allclose(np.exp(found_NV).sum(axis=1), 1, atol=1e-5)
    used = cutoffs or choose_cutoffs(COUNTS)
    expected_NV = dense_log_probability(used, values(tables), hidden())
    np.testing.assert_allclose(found_NV, expected_NV, atol=1e-5)
    targets_N, gather = toy.targets(WORDS), toy.gather_from(tables)
    found_N = inference.log_probability(loss, hidden(), targets_N, gather)
    np.testing.assert_allclose(found_N, tf.gather(expected_NV, targets_N, batch_dims=1), atol=1e-5)


class Toy:
    """A model whose hidden vectors are rows of a table."""

    def __init__(self, output, predictions):
        self.output, self.predictions = output, predictions

    def lookups(self, batch):
        hidden_GND, targets_GM, *_ = self.predictions
        count = tf.size(hidden_GND[..., 0])
        return {"input": tf.range(count), **self.output.lookups(targets_GM, count, batch)}

    def loss(self, batch, rows):
        hidden_GND = tf.reshape(rows["input"].values_UD, self.predictions.hidden_GND.shape)
        total, parts = self.output.loss(self.predictions._replace(hidden_GND=hidden_GND), rows)
        return tf.convert_to_tensor(total), tf.constant(1.0), parts


def gradients(loss, tables, predictions):
    """The loss, and by each table what a step of gradient descent at rate 1 takes off it."""
    hidden_ND = tf.reshape(predictions.hidden_GND, (-1, COLUMNS))
    inputs = DeviceTable(len(hidden_ND), COLUMNS, lambda shape: hidden_ND)
    tables = {"input": inputs, **tables}
    before = {name: table.values.numpy() for name, table in tables.items()}
    model = Toy(loss, predictions)
    batch = Batch(None, tf.zeros(2, tf.int64))
    total, _ = train_step(model, tables, sgd(), [batch], tf.constant(1.0), tf.constant(1, tf.int64))
    return total, {name: before[name] - table.values.numpy() for name, table in tables.items()}


@every_cut
@tiled
def test_gradients_equal_dense_autodiff(cutoffs, tile):
    loss, tables = make(cutoffs, tile)
    dense = {"input": hidden(), **values(tables)}
    targets_N = toy.targets(WORDS)
    weights_N = tf.constant(np.random.default_rng(3).random(len(targets_N)), tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(dense)
        log_NV = dense_log_probability(cutoffs or choose_cutoffs(COUNTS), dense, dense["input"])
        expected = -tf.reduce_sum(weights_N * tf.gather(log_NV, targets_N, batch_dims=1))
    by_tables = tape.gradient(expected, dense)
    total, found = gradients(loss, tables, toy.singly(hidden(), targets_N, weights_N))
    np.testing.assert_allclose(total, expected, rtol=1e-5)
    assert found.keys() == by_tables.keys()
    for name, gradient in found.items():
        np.testing.assert_allclose(gradient, by_tables[name], rtol=1e-5, atol=1e-5)


def test_a_group_is_all_its_pairs():
    loss, tables = make()
    groups, singles, owners_P = toy.groups(WORDS, COLUMNS)
    total, found = gradients(loss, make()[1], groups)
    expected, by_singles = gradients(loss, tables, singles)
    by_hidden = toy.summed(by_singles["input"], owners_P, 12)
    np.testing.assert_allclose(total, expected, rtol=1e-5)
    for name, gradient in found.items():
        wanted = by_hidden if name == "input" else by_singles[name]
        np.testing.assert_allclose(gradient, wanted, rtol=1e-5, atol=2e-5)


@tiled
def test_a_cluster_without_targets_is_not_read(tile):
    loss, tables = make(tile=tile)
    targets_N = tf.constant([0, 3, 12, 12, 15], tf.int32)  # of the head and of the second cluster
    rows = {}
    for name, ids in loss.lookups(targets_N[:, None], 5, tf.zeros(2)).items():
        ids_U, inverse_N = unique(ids)
        rows[name] = Rows(tables[name].gather(ids_U), inverse_N)
    _, parts = loss.loss(toy.singly(hidden(5), targets_N), rows)
    touched = []

    def update(name, ids_U, rows_UD, gradients_UD):
        touched.extend((name, id) for id in ids_U.numpy().tolist())

    for part in parts:
        stream.differentiate(part, toy.gather_from(tables), update)
    head, tail = ([(name, id) for id in range(size)] for name, size in (("head", 7), ("tail2", 20)))
    assert sorted(touched) == sorted(head + tail)


@pytest.mark.parametrize("k", [1, 7, WORDS + 5])
def test_top_k_is_that_of_the_sorted_distribution(k):
    loss, tables = make()
    toy.assert_top_k(loss, tables, hidden(), k)


def test_tables_and_what_they_start_as():
    loss = AdaptiveSoftmax(toy.counts(500), 100, (50, 150, 300))
    tables = loss.tables()
    assert {name: (spec.rows, spec.columns) for name, spec in tables.items()} == {
        "head": (53, 100),
        "projection1": (25, 100),
        "tail1": (100, 25),
        "projection2": (8, 100),
        "tail2": (150, 8),
        "projection3": (8, 100),
        "tail3": (200, 8),
    }
    first, other = (tables[f"projection{k}"].initial((400, 100)).numpy() for k in (2, 3))
    np.testing.assert_allclose(first.std(), 0.1, rtol=0.02)
    assert (first != other).any()
    reseeded = AdaptiveSoftmax(toy.counts(500), 100, (50, 150, 300), seed=1).tables()
    assert (reseeded["projection2"].initial((400, 100)).numpy() != first).any()
    for name in ("head", "tail1"):
        assert not tables[name].initial((5, 5)).numpy().any()


@pytest.mark.parametrize(
    "counts", [[5], [5, 5], [5, 0, 0], [0] * 9, [1] * 300], ids=lambda counts: str(counts)[:9]
)
def test_small_vocabularies_and_counts_of_zero(counts):
    loss, tables = make((), counts=np.array(counts))
    found_NV = toy.all_log_probabilities(loss, hidden(), tables)
    np.testing.assert_allclose(np.exp(found_NV).sum(axis=1), 1, atol=1e-5)
    total, found = gradients(loss, tables, toy.singly(hidden(), toy.targets(len(counts))))
    # On AVX2, TensorFlow's softmax of one score is 1 - 2^-24, so its loss is not exactly 0.
    assert (abs(total) < 1e-5) == (len(counts) == 1) and np.isfinite(found["input"]).all()


@pytest.mark.parametrize("cutoffs", [(0,), (60,), (61,), (5, 5), (9, 3), (-1, 4)], ids=str)
def test_cutoffs_that_cannot_be_are_refused(cutoffs):
    with pytest.raises(ValueError, match="give rising numbers from 1 to 59, as there are 60 words"):
        AdaptiveSoftmax(COUNTS, COLUMNS, cutoffs)


@pytest.mark.parametrize("words", [2, 3, 10, 40])
@pytest.mark.parametrize("counts", [toy.counts(40), np.ones(40, int)], ids=["zipf", "equal"])
def test_the_cutoffs_chosen_need_the_fewest_scores(words, counts):
    counts = counts[:words]
    p = counts / counts.sum()

    def scores(cutoffs):
        bounds = [*cutoffs, words]
        return (
            bounds[0]
            + len(cutoffs)
            + sum(p[a:b].sum() * (b - a) for a, b in itertools.pairwise(bounds))
        )

    every = [cut for size in range(3) for cut in itertools.combinations(range(1, words), size)]
    # Ids up to 40 are not all tried, but some near each of them.
    assert scores(choose_cutoffs(counts)) <= 1.02 * min(scores(cut) for cut in every)
