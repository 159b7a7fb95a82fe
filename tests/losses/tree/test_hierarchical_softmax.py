"""Hierarchical softmax against a tree that is walked node by node."""

import heapq

import numpy as np
import pytest
import tensorflow as tf

from app.losses import inference, stream
from app.losses.base import Predictions
from app.losses.tree import grouped_loss, hierarchical_softmax
from app.losses.tree.hierarchical_softmax import HierarchicalSoftmax
from app.losses.tree.paths import canonical_code, code_length_counts
from app.tables.row_reads import gather_unique
from app.types import Rows
from tests.losses import toy
from tests.losses.toy import DIM

WORDS = 60
SKEWED = [2**k for k in range(30, 0, -1)] + [1] * 4
COUNTS = {
    "zipf": toy.counts(WORDS),
    "equal": np.full(WORDS, 3),
    "none seen": np.zeros(WORDS, int),
    "skewed": np.array(SKEWED),
    "two": np.array([1, 1]),
    "three": np.array([7, 1, 0]),
}
# How many depths are scored with every vector of a group.
every_way = pytest.mark.parametrize("shared", [7, 40, 2], ids=["usual", "all", "few"])
every_tree = pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)


@pytest.fixture
def make(monkeypatch):
    def make(counts, shared=7, columns=DIM):
        monkeypatch.setattr(grouped_loss, "_SHARED", shared)
        loss = HierarchicalSoftmax(counts, columns)
        return loss, toy.make_tables(loss)

    return make


def paths(counts):
    """Of every word, its path from the root down: rows, and whether it goes left there."""
    tree, found = canonical_code(counts), {}

    def walk(depth, index, path):
        if index >= tree.inner_E[depth]:
            found[int(tree.last_E[depth] - index)] = path
            return
        row = int(tree.rows_E[depth] + index)
        walk(depth + 1, 2 * index, [*path, (row, 1.0)])
        walk(depth + 1, 2 * index + 1, [*path, (row, 0.0)])

    walk(0, 0, [])
    return [found[word] for word in range(len(counts))]


def test_the_rows_of_a_step_are_planned():
    counts, draw = toy.counts(20_000), np.random.default_rng(0)
    words_N = draw.choice(len(counts), 400, p=counts / counts.sum())
    of_words = paths(counts)
    expected = len({row for word in words_N for row, _ in of_words[word]})
    predictions = toy.singly(tf.zeros((400, DIM)), tf.constant(words_N, tf.int32))
    (part,) = HierarchicalSoftmax(counts, DIM).loss(predictions, {})[1]
    assert part.rows == pytest.approx(expected, rel=0.25)
    assert canonical_code(counts).count_read(None) == len(counts) - 1


def dense_log_probability(counts, rows_VD, hidden_ND):
    """(N, V), from all scores and a matrix of all paths; differentiable."""
    left_VU, right_VU = (np.zeros((len(counts), rows_VD.shape[0]), np.float32) for _ in range(2))
    for word, path in enumerate(paths(counts)):
        for row, left in path:
            left_VU[word, row], right_VU[word, row] = left, 1 - left
    scores_NU = tf.matmul(hidden_ND, rows_VD, transpose_b=True)
    left_NV = tf.matmul(tf.math.log_sigmoid(scores_NU), left_VU, transpose_b=True)
    return left_NV + tf.matmul(tf.math.log_sigmoid(-scores_NU), right_VU, transpose_b=True)


def dense(counts):
    """The function of the tables and the vectors to `dense_log_probability`."""
    return lambda tables, hidden_ND: dense_log_probability(counts, tables["output"], hidden_ND)


@every_tree
@pytest.mark.parametrize("depths", [1, 3, 15])
def test_probabilities_of_all_words_sum_to_one(counts, depths, make, monkeypatch):
    monkeypatch.setattr(hierarchical_softmax, "_DEPTHS", depths)
    loss, tables = make(counts)
    found_NV = toy.all_log_probabilities(loss, toy.hidden(), tables)
    assert found_NV.dtype == np.float32
    np.testing.assert_allclose(np.exp(found_NV).sum(axis=1), 1, atol=1e-5)
    expected_NV = dense_log_probability(counts, tables["output"].values, toy.hidden())
    np.testing.assert_allclose(found_NV, expected_NV, atol=2e-5)


@pytest.mark.slow
@every_tree
def test_log_probability_and_gradients_equal_dense_autodiff(counts, make):
    loss, tables = make(counts)
    words, hidden_ND = len(counts), toy.hidden(count=40)
    targets_N = tf.concat([toy.targets(words, count=37), [0, words - 1, words - 1]], axis=0)
    weights_N = tf.constant(np.random.default_rng(3).random(40), tf.float32)
    predictions = toy.singly(hidden_ND, targets_N, weights_N)
    touched = toy.assert_dense(loss, tables, predictions, dense(counts))
    log_NV = dense(counts)({"output": tables["output"].values}, hidden_ND)
    found_N = inference.log_probability(loss, hidden_ND, targets_N, toy.gather_from(tables))
    np.testing.assert_allclose(found_N, tf.gather(log_NV, targets_N, batch_dims=1), atol=2e-5)

    on_paths = {row for word in set(targets_N.numpy()) for row, _ in paths(counts)[word]}
    assert sorted(touched["output"]) == sorted(on_paths)


@pytest.mark.parametrize(
    ("counts", "is_single"),
    [
        pytest.param(COUNTS["zipf"], True, marks=pytest.mark.slow),
        (COUNTS["skewed"], False),
        ([3], 1),
    ],
)
def test_xla_computes_the_same_with_paths_of_one_length(counts, is_single, make):
    loss, tables = make(np.array(counts))
    predictions = toy.groups(len(counts))[int(is_single)]
    total, by_hidden, by_rows, _ = toy.streamed(loss, predictions, tables)
    seed = tf.zeros(2, tf.int64)

    @tf.function(autograph=False, jit_compile=True)
    def differentiate(predictions):
        ids = loss.lookups(predictions.targets_GM, 12, seed)
        rows = gather_unique(ids, toy.gather_from(tables))
        values_UD = rows["output"].values_UD
        with tf.GradientTape() as tape:
            tape.watch((predictions.hidden_GND, values_UD))
            total, parts = loss.loss(predictions, rows)
        assert not parts
        by_both = tape.gradient(total, (predictions.hidden_GND, values_UD))
        losses_N = loss.vector_losses(predictions, rows)
        return total, *by_both, rows["output"].ids_U, losses_N

    found, found_hidden, found_rows, ids_U, losses_N = differentiate(predictions)
    np.testing.assert_allclose([found, sum(losses_N)], [total] * 2, rtol=1e-5)
    np.testing.assert_allclose(np.reshape(found_hidden, by_hidden.shape), by_hidden, 1e-5, 1e-5)
    is_row_U = ids_U < len(by_rows["output"])
    summed = toy.summed(found_rows[is_row_U], ids_U[is_row_U], len(by_rows["output"]))
    np.testing.assert_allclose(summed, by_rows["output"], 1e-5, 1e-5)


@pytest.mark.slow
@every_way
def test_a_group_is_all_its_pairs(shared, make):
    loss, tables = make(COUNTS["zipf"], shared)
    toy.assert_pairs(loss, tables, WORDS)


@pytest.mark.slow
@pytest.mark.parametrize("groups", [0, 20, 40])
def test_gradients_of_a_long_batch_equal_dense_autodiff(groups, make):
    """Lengths that are padded, runs of pairs that end with their block, more columns than lanes."""
    words, columns, random = 300, 11, np.random.default_rng(4)
    loss, tables = make(toy.counts(words), columns=columns)
    shape = (groups, 16, 18) if groups else (333, 1, 1)
    hidden_GND = tf.constant(random.normal(size=(*shape[:2], columns)), tf.float32)
    targets_GM = (words * random.random((shape[0], shape[2])) ** 3).astype(np.int32)
    weights_GNM = random.integers(3, size=shape).astype(np.float32)
    predictions = Predictions(hidden_GND, tf.constant(targets_GM), tf.constant(weights_GNM))
    toy.assert_dense(loss, tables, predictions, dense(toy.counts(words)), tolerance=1e-3)


@pytest.mark.slow
@every_way
def test_unique_vectors_have_the_gradients_of_all_their_occurrences(shared, make):
    loss, tables = make(COUNTS["zipf"], shared)
    random = np.random.default_rng(0)
    values_UD = tf.constant(random.normal(size=(7, DIM)), tf.float32)
    index_N = tf.constant(random.integers(7, size=12), tf.int32)
    targets_GM = tf.constant(random.integers(WORDS, size=(3, 6)), tf.int32)
    weights_GNM = tf.constant(random.integers(3, size=(3, 4, 6)), tf.float32)
    hidden_GND = tf.reshape(tf.gather(values_UD, index_N), (3, 4, DIM))
    predictions = Predictions(hidden_GND, targets_GM, weights_GNM)
    expected, by_hidden, expected_rows, _ = toy.streamed(loss, predictions, tables)
    unique = predictions._replace(unique=Rows(values_UD, index_N))
    total, by_unique, by_rows, _ = toy.streamed(loss, unique, tables)
    summed = toy.summed(by_hidden, index_N.numpy(), 7)
    np.testing.assert_allclose(total, expected, rtol=1e-5)
    np.testing.assert_allclose(by_unique, summed, atol=1e-5)
    np.testing.assert_allclose(by_rows["output"], expected_rows["output"], atol=1e-5)


@pytest.mark.slow
def test_products_in_bfloat16_come_close(make):
    loss, tables = make(COUNTS["zipf"], 2, columns=32)
    random = np.random.default_rng(0)
    hidden_GND = tf.constant(random.normal(size=(3, 4, 32)), tf.bfloat16)
    targets_GM = tf.constant(random.integers(WORDS, size=(3, 6)), tf.int32)
    predictions = Predictions(hidden_GND, targets_GM, tf.ones((3, 4, 6)))
    total, by_hidden, by_rows, _ = toy.streamed(loss, predictions, tables)
    wide = predictions._replace(hidden_GND=tf.cast(hidden_GND, tf.float32))
    expected, wide_hidden, wide_rows, _ = toy.streamed(loss, wide, tables)
    np.testing.assert_allclose(total, expected, rtol=0.01)
    for found, exact in ((by_hidden, wide_hidden), (by_rows["output"], wide_rows["output"])):
        assert np.linalg.norm(found - exact) < 0.02 * np.linalg.norm(exact)


@pytest.mark.parametrize("k", [1, 7, WORDS + 5])
def test_top_k_is_that_of_the_sorted_distribution(k, make, monkeypatch):
    monkeypatch.setattr(hierarchical_softmax, "_DEPTHS", 3)
    loss, tables = make(COUNTS["zipf"])
    toy.assert_top_k(loss, tables, toy.hidden(), k)


def test_top_k_leaves_unlikely_subtrees_out(make, monkeypatch):
    monkeypatch.setattr(hierarchical_softmax, "_DEPTHS", 2)
    loss, tables = make(COUNTS["equal"])
    hidden_ND = toy.hidden(count=1)
    word = 20
    for row, left in paths(COUNTS["equal"])[word]:
        tables["output"].assign(tf.constant([row]), (4 if left else -4) * hidden_ND)
    read = []

    def gather(name, ids_U):
        read.extend(ids_U.numpy().tolist())
        return tables[name].gather(ids_U)

    ids_NK, _ = inference.top_k(loss, hidden_ND, 1, gather)
    assert ids_NK.numpy().tolist() == [[word]]
    above = int(canonical_code(COUNTS["equal"]).inner_E[:4].sum())
    assert len(read) == above + 3  # all nodes of the first depths, and one subtree of two more


@pytest.mark.slow
def test_the_number_of_predictions_need_not_be_known(make):
    loss, tables = make(COUNTS["zipf"], 2)

    @tf.function(autograph=False)
    def of_some(hidden_ND, targets_N):
        return inference.log_probability(loss, hidden_ND, targets_N, toy.gather_from(tables))

    specs = tf.TensorSpec([None, DIM]), tf.TensorSpec([None], tf.int32)
    function = of_some.get_concrete_function(*specs)
    for count in (1, 70):
        given = toy.hidden(count=count), toy.targets(WORDS, count=count)
        expected_N = inference.log_probability(loss, *given, toy.gather_from(tables))
        np.testing.assert_allclose(function(*given), expected_N, rtol=1e-5)


@pytest.mark.slow
def test_the_columns_of_gradients_are_known_when_traced():
    """Replicas pack the gradients by them."""
    loss = HierarchicalSoftmax(toy.counts(40), DIM)
    gather, columns = toy.gather_from(toy.make_tables(loss)), []

    @tf.function(autograph=False)
    def step(hidden_ND, targets_N):
        _, (part,) = loss.loss(toy.singly(hidden_ND, targets_N), {})
        _, by_hidden, (_, by_rows) = stream.differentiate(part, gather)
        columns.extend([by_hidden.shape[1], by_rows.shape[1]])
        return by_rows

    step(toy.hidden(), toy.targets(40))
    assert columns == [DIM, DIM]


def test_a_single_word_is_certain_and_teaches_nothing(make):
    loss, tables = make(np.array([3]))
    total, by_hidden, by_rows, _ = toy.streamed(
        loss, toy.singly(toy.hidden(), toy.targets(1)), tables
    )
    assert total == 0 and not by_hidden.any() and not by_rows["output"].any()
    assert not toy.all_log_probabilities(loss, toy.hidden(), tables).any()


def test_a_vector_that_predicts_nothing_changes_nothing(make):
    loss, tables = make(COUNTS["zipf"], 2)
    toy.assert_nothing_is_learned(loss, tables, WORDS)


def test_the_table_has_a_row_for_each_node_and_starts_at_zero(make):
    spec = HierarchicalSoftmax(COUNTS["zipf"], 8).tables()["output"]
    assert (spec.rows, spec.columns) == (WORDS - 1, 8)
    assert not spec.initial((WORDS - 1, 8)).numpy().any()


# Code lengths against Huffman's algorithm as it is told, and the tree that they span.


def one_by_one(counts):
    """The sum of counts times lengths, and the longest length: of equal weights words go first."""
    heap = [(max(int(count), 1), 0, number, 0) for number, count in enumerate(counts)]
    heapq.heapify(heap)
    cost = made = 0
    while len(heap) > 1:
        one, other = heapq.heappop(heap), heapq.heappop(heap)
        cost += one[0] + other[0]
        made += 1
        heapq.heappush(heap, (one[0] + other[0], 1, made, max(one[3], other[3]) + 1))
    return cost, heap[0][3]


def fibonacci(count):
    found = [1, 1]
    while len(found) < count:
        found.append(found[-1] + found[-2])
    return np.array(found[:count][::-1])


def cost_and_depth(counts):
    words_E = code_length_counts(counts)
    descending = np.sort(np.maximum(counts, 1))[::-1]
    return int(descending @ np.repeat(np.arange(len(words_E)), words_E)), len(words_E) - 1


SETS = {
    "zipf": 10**6 // np.arange(1, 2000),
    "equal": np.full(1000, 7),
    "one": np.array([5]),
    "two": np.array([5, 5]),
    "three": np.array([5, 5, 5]),
    "none seen": np.zeros(37, int),
    "some never seen": np.array([9, 3, 0, 0, 0]),
    "a power of two": np.ones(64, int),
    "as skewed as can be": fibonacci(80),
    "one word is nearly all": np.array([10**15, 2, 1, 1, 1]),
}


@pytest.mark.parametrize("counts", SETS.values(), ids=SETS)
def test_lengths_are_huffmans(counts):
    assert cost_and_depth(counts) == one_by_one(counts)


@pytest.mark.parametrize("seed", range(40))
def test_lengths_are_huffmans_for_random_counts(seed):
    random = np.random.default_rng(seed)
    most = [2, 6, 50, 10**9][seed % 4]
    counts = np.sort(random.integers(0, most, size=random.integers(1, 300)))[::-1]
    assert cost_and_depth(counts) == one_by_one(counts)


@pytest.mark.parametrize("counts", SETS.values(), ids=SETS)
def test_every_word_has_its_place_in_a_whole_tree(counts):
    tree = canonical_code(counts)
    assert tree.words_E.sum() == len(counts) and tree.inner_E.sum() == len(counts) - 1
    # At each depth there are the children of the nodes above, with children or words.
    assert tree.words_E[0] + tree.inner_E[0] == 1 and tree.inner_E[-1] == 0
    np.testing.assert_array_equal((tree.words_E + tree.inner_E)[1:], 2 * tree.inner_E[:-1])
    np.testing.assert_array_equal(tree.rows_E, np.cumsum([0, *tree.inner_E[:-1]]))

    ids = np.arange(len(counts))
    depths = np.searchsorted(tree.ends_E, ids, side="right")
    assert (np.diff(depths) >= 0).all()  # frequent words have short paths
    for depth in range(tree.depth + 1):
        indices = tree.last_E[depth] - ids[depths == depth]
        inner = tree.inner_E[depth]
        assert sorted(indices) == list(range(inner, inner + tree.words_E[depth]))


def test_the_mean_length_is_about_the_entropy():
    counts = np.maximum(10**9 // np.arange(1, 10**6 + 1), 1)
    words_E, p = code_length_counts(counts), counts / counts.sum()
    mean, entropy = p @ np.repeat(np.arange(len(words_E)), words_E), -(p @ np.log2(p))
    assert entropy <= mean < entropy + p[0] + 0.086  # Gallager 1978
