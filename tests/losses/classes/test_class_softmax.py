"""Full and class softmax against dense constructions."""

import functools
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from app.losses import inference, softmax
from app.losses.classes.class_softmax import ClassSoftmax
from app.losses.classes.classes import RULES, assign_devices, partition
from tests.losses import toy
from tests.losses.toy import DIM

WORDS = 40
# levels, rule, rows of a tile
SHAPES = [
    (1, None, 0),
    (1, None, 7),
    *((levels, rule, tile) for levels in (2, 3) for rule in RULES for tile in (0, 3)),
]
every_shape = pytest.mark.parametrize(("levels", "rule", "tile"), SHAPES)


def make_loss(levels, rule, tile=0, words=WORDS, classes=0):
    starts = partition(toy.counts(words), levels, rule, classes) if levels > 1 else ()
    with mock.patch("app.losses.classes.levels._TILE", DIM * tile or 8 << 20):
        return ClassSoftmax(words, DIM, starts), starts


def dense_log_probability(starts, tables, hidden_ND):
    """(N, V) in the plainest terms, from whole tables; differentiable."""
    above_NG = tf.zeros((len(hidden_ND), 1))
    names = ["superclasses", "classes", "output"][2 - len(starts) :]
    for name, cut_G in zip(names, [None, *starts], strict=True):
        scores_NV = tf.matmul(hidden_ND, tables[name], transpose_b=True)
        cut_G = [0, scores_NV.shape[1]] if cut_G is None else cut_G
        above_NG = tf.concat(
            [
                above_NG[:, g, None] + tf.nn.log_softmax(scores_NV[:, cut_G[g] : cut_G[g + 1]])
                for g in range(len(cut_G) - 1)
            ],
            axis=1,
        )
    return above_NG


@every_shape
def test_log_probabilities_equal_the_dense_construction(levels, rule, tile):
    loss, starts = make_loss(levels, rule, tile)
    tables, hidden_ND, targets_N = toy.make_tables(loss), toy.hidden(), toy.targets(WORDS)
    values = {name: table.values for name, table in tables.items()}
    expected_NV = dense_log_probability(starts, values, hidden_ND)
    np.testing.assert_allclose(np.exp(expected_NV).sum(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(
        toy.all_log_probabilities(loss, hidden_ND, tables), expected_NV, atol=1e-5
    )
    found_N = inference.log_probability(loss, hidden_ND, targets_N, toy.gather_from(tables))
    np.testing.assert_allclose(found_N, tf.gather(expected_NV, targets_N, batch_dims=1), atol=1e-5)


@every_shape
@pytest.mark.parametrize("scores", [10, 8 << 20])
def test_gradients_equal_dense_autodiff(levels, rule, tile, scores, monkeypatch):
    monkeypatch.setattr(softmax, "_SCORES", scores)  # vectors some at a time
    loss, starts = make_loss(levels, rule, tile)
    tables, targets_N = toy.make_tables(loss), toy.targets(WORDS)
    weights_N = tf.constant(np.random.default_rng(3).random(len(targets_N)), tf.float32)
    predictions = toy.singly(toy.hidden(), targets_N, weights_N)
    dense = functools.partial(dense_log_probability, starts)
    touched = toy.assert_dense(loss, tables, predictions, dense)
    if levels > 1:  # only rows of touched classes
        cut = starts[-1]
        groups = set(np.searchsorted(cut, targets_N.numpy(), side="right") - 1)
        assert len(touched["output"]) == sum(cut[g + 1] - cut[g] for g in groups)


def test_many_words_of_a_group_are_as_many_single_predictions():
    loss, _ = make_loss(2, "fewest_rows")
    toy.assert_pairs(loss, toy.make_tables(loss), WORDS)


@every_shape
@pytest.mark.parametrize("k", [1, 7, WORDS + 5])
def test_top_k_is_that_of_the_sorted_distribution(levels, rule, tile, k):
    loss, _ = make_loss(levels, rule, tile)
    toy.assert_top_k(loss, toy.make_tables(loss), toy.hidden(), k)


def test_top_k_looks_into_few_classes_where_one_is_likely():
    loss, starts = make_loss(2, "equal_size")
    tables, hidden_ND = toy.make_tables(loss), toy.hidden(count=1)
    tables["classes"].assign(tf.constant([2]), 50 * hidden_ND)
    read = []

    def gather(name, ids_U):
        read.append((name, len(ids_U)))
        return tables[name].gather(ids_U)

    ids_NK, _ = inference.top_k(loss, hidden_ND, 3, gather)
    ids_NK = ids_NK.numpy()
    assert ((ids_NK >= starts[0][2]) & (ids_NK < starts[0][3])).all()
    assert [name for name, _ in read] == ["classes", "output"]


@pytest.mark.parametrize("words", [1, 2])
@pytest.mark.parametrize(("levels", "rule", "tile"), [(1, None, 0), *SHAPES[2::2]])
def test_vocabularies_of_one_and_two_words(levels, rule, tile, words):
    loss, _ = make_loss(levels, rule, tile, words)
    tables = toy.make_tables(loss)
    total, _, _, _ = toy.streamed(loss, toy.singly(toy.hidden(), toy.targets(words)), tables)
    found_NV = toy.all_log_probabilities(loss, toy.hidden(), tables)
    np.testing.assert_allclose(np.exp(found_NV).sum(axis=1), 1, atol=1e-5)
    # On AVX2, TensorFlow's softmax of one score is 1 - 2^-24, so its loss is not exactly 0.
    assert (abs(total) < 1e-5) == (words == 1)


def test_a_vector_that_predicts_nothing_changes_nothing():
    loss, _ = make_loss(2, "fewest_rows")
    toy.assert_nothing_is_learned(loss, toy.make_tables(loss), WORDS)


@pytest.mark.parametrize("levels", [2, 3])
@pytest.mark.parametrize("devices", [2, 3])
def test_classes_dealt_over_devices_are_the_same_loss(levels, devices):
    whole, starts = make_loss(levels, "fewest_rows")
    device_C = assign_devices(toy.counts(WORDS), starts[-1], 20, devices)
    dealt = ClassSoftmax(WORDS, DIM, starts, devices=device_C)
    tables = toy.make_tables(whole)
    # The same rows in other tables: those of each device's classes, one after the other.
    rows_of = [
        np.concatenate(
            [np.arange(*starts[-1][c : c + 2]) for c in np.flatnonzero(device_C == device)]
        )
        for device in range(devices)
    ]
    dealt_tables = toy.make_tables(dealt)
    for name, table in dealt_tables.items():
        if name in tables:
            values = tables[name].values.read_value()
        else:
            values = tf.gather(tables["output"].values, rows_of[int(name[-1])])
        table.assign(tf.range(len(values)), values)

    predictions = toy.singly(toy.hidden(), toy.targets(WORDS))
    total, by_hidden, by_rows, _ = toy.streamed(whole, predictions, tables)
    found, dealt_hidden, dealt_rows, _ = toy.streamed(dealt, predictions, dealt_tables)
    np.testing.assert_allclose(found, total, rtol=1e-6)
    np.testing.assert_allclose(dealt_hidden, by_hidden, atol=1e-6)
    for device in range(devices):
        np.testing.assert_allclose(
            dealt_rows[f"output{device}"], by_rows["output"][rows_of[device]], atol=1e-6
        )
    np.testing.assert_allclose(
        toy.all_log_probabilities(dealt, toy.hidden(), dealt_tables),
        toy.all_log_probabilities(whole, toy.hidden(), tables),
        atol=1e-6,
    )
    assert {name: spec.device for name, spec in dealt.tables().items() if "output" in name} == {
        f"output{device}": device for device in range(devices)
    }
