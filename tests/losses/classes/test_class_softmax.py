"""Full and class softmax against dense constructions."""

import functools
import itertools
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from app.losses import inference, softmax, stream
from app.losses.base import Predictions
from app.losses.classes.class_softmax import ClassSoftmax
from app.losses.classes.classes import (
    RULES,
    expected_rows,
    partition,
)
from tests.losses import toy
from tests.losses.toy import DIM, counts

WORDS = 40
# levels, rule, rows of a tile
SHAPES = [
    *((1, None, 0), (1, None, 7), (2, "fewest_rows", 0), (2, "equal_size", 3)),
    *((3, "equal_frequency", 0), (3, "fewest_rows", 3)),
]
OTHERS = sorted({*itertools.product((2, 3), RULES, (0, 3))} - {*SHAPES})
every_shape = pytest.mark.parametrize(
    ("levels", "rule", "tile"),
    [*SHAPES, *(pytest.param(*shape, marks=pytest.mark.slow) for shape in OTHERS)],
)


def make_loss(levels, rule, tile=0, words=WORDS, classes=0):
    starts = partition(toy.counts(words), levels, rule, classes) if levels > 1 else ()
    with mock.patch("app.losses.classes.class_softmax._TILE", DIM * tile or 8 << 20):
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
@pytest.mark.parametrize(("scores", "narrow"), [(10, DIM), (8 << 20, 0)])
def test_gradients_equal_dense_autodiff(levels, rule, tile, scores, narrow, monkeypatch):
    monkeypatch.setattr(softmax, "SCORES", scores)  # vectors some at a time
    monkeypatch.setattr(softmax, "NARROW", narrow)
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


@pytest.mark.parametrize(
    ("levels", "narrow", "dtype"), [(2, 0, tf.float32), (2, 0, tf.bfloat16), (1, DIM, tf.bfloat16)]
)
def test_classes_and_narrow_rows_are_computed_in_float32(levels, narrow, dtype, monkeypatch):
    """In a graph, where the size of a class is not known; oneDNN would prepare each anew."""
    monkeypatch.setattr(softmax, "NARROW", narrow)
    loss, starts = make_loss(levels, "fewest_rows")
    tables, targets_N = toy.make_tables(loss), toy.targets(WORDS)
    hidden_ND = tf.cast(toy.hidden(), dtype)
    values = {name: table.values.read_value() for name, table in tables.items()}
    rounded_ND = tf.cast(hidden_ND, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch((rounded_ND, values))
        log_NV = dense_log_probability(starts, values, rounded_ND)
        expected = -tf.reduce_sum(tf.gather(log_NV, targets_N, batch_dims=1))
    dense = tape.gradient(expected, values["output"])

    @tf.function(autograph=False)
    def words():
        part, *_ = loss.loss(toy.singly(hidden_ND, targets_N), {})[1]
        return stream.differentiate(part, toy.gather_from(tables))

    _, by_hidden, (ids_U, by_rows_UD) = words()
    assert by_hidden.dtype == dtype
    by_rows = tf.scatter_nd(ids_U[:, tf.newaxis], by_rows_UD, dense.shape)
    np.testing.assert_allclose(by_rows, dense, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("narrow", [0, DIM])
def test_a_target_of_no_share_has_its_loss(narrow, monkeypatch):
    """Its share is 0 in float32, so that the loss is computed from the scores of all words."""
    monkeypatch.setattr(softmax, "NARROW", narrow)
    loss, starts = make_loss(1, None)
    predictions = toy.singly(300 * toy.hidden(), toy.targets(WORDS))
    dense = functools.partial(dense_log_probability, starts)
    toy.assert_dense(loss, toy.make_tables(loss), predictions, dense, tolerance=1e-3)
    found_N = inference.log_probability(
        loss, 300 * toy.hidden(), toy.targets(WORDS), toy.gather_from(toy.make_tables(loss))
    )
    assert np.min(found_N) < -200


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
@pytest.mark.parametrize(("levels", "rule", "tile"), SHAPES)
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


# Which words go together: cuts and sizes.


ZIPF = counts(1000)
every_rule = pytest.mark.parametrize("rule", RULES)


@every_rule
@pytest.mark.parametrize("levels", [2, 3])
@pytest.mark.parametrize("words", [1, 2, 3, 10, 1000])
@pytest.mark.parametrize("classes", [0, 1, 7, 1000])
def test_every_word_is_in_one_class_and_no_class_is_empty(rule, levels, words, classes):
    starts = partition(counts(words), levels, rule, min(classes, words))
    assert len(starts) == levels - 1
    rows = words
    for starts_G in reversed(starts):
        assert starts_G[0] == 0 and starts_G[-1] == rows
        assert (np.diff(starts_G) > 0).all()
        rows = len(starts_G) - 1


def test_classes_of_equal_size():
    (starts,) = partition(ZIPF, 2, "equal_size", 40)
    np.testing.assert_array_equal(np.diff(starts), 25)


def test_classes_of_equal_frequency():
    flat = np.sort(np.random.default_rng(0).integers(90, 110, 10_000))[::-1]
    (starts,) = partition(flat, 2, "equal_frequency", 50)
    shares = np.add.reduceat(flat / flat.sum(), starts[:-1])
    np.testing.assert_allclose(shares, 1 / 50, rtol=0.02)
    # A word that is more frequent than a class has a class of its own.
    (starts,) = partition(np.array([1000, 1, 1, 1, 1]), 2, "equal_frequency", 4)
    assert starts[1] == 1


def test_the_fewest_rows_have_classes_of_one_over_the_root_of_p():
    p = 1 / np.arange(1, 1_000_001)
    p /= p.sum()
    (starts,) = partition(p * 1e9, 2, "fewest_rows", round(np.sqrt(p).sum()))
    sizes = np.diff(starts)
    middle = p[(starts[:-1] + starts[1:]) // 2]
    wide = sizes >= 20  # where rounding to whole words means little
    np.testing.assert_allclose(sizes[wide], 1 / np.sqrt(middle[wide]), rtol=0.1)
    np.testing.assert_allclose(expected_rows(p * 1e9, [starts]), 2 * np.sqrt(p).sum(), rtol=0.02)
    others = [
        expected_rows(p * 1e9, partition(p * 1e9, 2, "fewest_rows", len(sizes) * factor))
        for factor in (0.5, 2)
    ]
    assert expected_rows(p * 1e9, [starts]) < min(others)


@pytest.mark.parametrize("words", [20_000, 200_000])
def test_the_rows_of_a_step_are_planned_from_the_sizes_of_classes(words):
    counts_V, targets_N = counts(words), tf.zeros(400, tf.int32)
    starts = partition(counts_V, 2, "fewest_rows", targets=400)
    predictions = toy.singly(tf.zeros((400, DIM)), targets_N)
    part, above = ClassSoftmax(words, DIM, starts).loss(predictions, {})[1]
    rows = expected_rows(counts_V, starts, 400) - len(starts[0]) + 1
    assert part.rows == pytest.approx(rows, rel=0.2)
    assert above.rows == pytest.approx(len(starts[0]) - 1)
    (whole,) = ClassSoftmax(words, DIM).loss(predictions, {})[1]
    assert whole.rows == pytest.approx(words)
    # How many pairs of vectors and words of groups there are is not known when a step is traced.
    grouped = Predictions(
        tf.zeros((100, 3, DIM)), tf.zeros((100, 4), tf.int32), tf.ones((100, 3, 4))
    )
    loss = ClassSoftmax(words, DIM, starts)
    found = []
    tf.function(lambda: found.extend(loss.loss(grouped, {})[1])).get_concrete_function()
    assert [part.rows for part in found] == [part.rows, above.rows]


def test_a_step_of_many_targets_has_other_classes_than_one_of_few():
    few, many = (
        len(partition(counts(100_000), 2, "fewest_rows", targets=n)[0]) for n in (400, 40_000)
    )
    assert few > 3 * many  # few targets read rows, many score them


@pytest.mark.parametrize("levels", [2, 3])
def test_the_rule_for_the_fewest_rows_has_the_fewest(levels):
    rows = {rule: expected_rows(ZIPF, partition(ZIPF, levels, rule)) for rule in RULES}
    assert rows["fewest_rows"] < 0.95 * min(rows["equal_size"], rows["equal_frequency"])


def test_no_partition_of_few_words_touches_much_fewer_rows():
    few = np.array([50, 20, 10, 5, 3, 2, 1, 1])
    best = min(
        expected_rows(few, [np.array([0, *cut, 8])])
        for size in range(8)
        for cut in itertools.combinations(range(1, 8), size)
    )
    assert expected_rows(few, partition(few, 2, "fewest_rows")) <= 1.25 * best


def test_equal_counts_make_all_rules_the_same():
    cuts = [partition(np.full(100, 7), 2, rule)[0].tolist() for rule in RULES]
    assert cuts[0] == cuts[1] == cuts[2]


@every_rule
def test_words_never_seen_have_classes_too(rule):
    zeros = np.array([5, 3, 0, 0, 0, 0])
    assert partition(zeros, 2, rule)[0][-1] == 6
    assert np.isfinite(expected_rows(zeros, partition(zeros, 2, rule)))


def test_expected_rows_by_hand():
    # Classes {0}, {1, 2}: 2 rows of classes, and 1 or 2 of words.
    assert expected_rows(np.array([2, 1, 1]), [np.array([0, 1, 3])]) == 2 + 0.5 * 1 + 0.5 * 2
    assert expected_rows(np.array([2, 1, 1]), []) == 3


def test_expected_rows_are_those_of_drawn_targets():
    (starts,) = partition(ZIPF, 2, "fewest_rows")
    drawn = np.random.default_rng(0).choice(1000, size=(2000, 50), p=ZIPF / ZIPF.sum())
    group = np.searchsorted(starts, drawn, side="right") - 1
    touched = np.stack([(group == c).any(axis=1) for c in range(len(starts) - 1)])
    rows = touched.mean(axis=1) @ np.diff(starts) + len(starts) - 1
    np.testing.assert_allclose(expected_rows(ZIPF, [starts], 50), rows, rtol=0.02)
