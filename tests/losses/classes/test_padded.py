"""Softmaxes in blocks of static sizes under XLA, against the same without XLA."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from app.losses import inference, softmax, stream
from app.losses.base import Predictions, VectorWordPairs
from app.losses.classes import padded
from app.losses.classes.adaptive_softmax import AdaptiveSoftmax
from app.losses.classes.class_softmax import ClassSoftmax
from app.losses.classes.classes import partition
from app.losses.classes.padded import PaddedSegments
from app.tables.row_reads import gather_unique
from tests.losses import toy
from tests.losses.toy import DIM
from tests.reference import gpu

WORDS = 60
LOSSES = {
    "full": lambda: ClassSoftmax(WORDS, DIM),
    "classes": lambda: ClassSoftmax(WORDS, DIM, partition(toy.counts(WORDS), 2, "fewest_rows", 9)),
    "equal frequency": lambda: ClassSoftmax(
        WORDS, DIM, partition(toy.counts(WORDS), 2, "equal_frequency", 8)
    ),
    "three levels": lambda: ClassSoftmax(WORDS, DIM, partition(toy.counts(WORDS), 3, "equal_size")),
    "one word a class": lambda: ClassSoftmax(WORDS, DIM, [np.arange(WORDS + 1)]),
    "adaptive": lambda: AdaptiveSoftmax(toy.counts(WORDS), DIM, (5, 20, 40), divisor=1.5),
}
# The numbers of a block's rows and of its scores; pairs of a segment; the rows of a tile.
SIZES = {
    "usual": (48 << 20, 32 << 20, (32, 512, 8192), (8, 128)),
    "tiles": (40 * DIM, 100, (2, 5), (1, 4)),
    "one pair": (30 * DIM, 1, (1,), (1, 2)),
    "larger than a block": (3 * DIM, 12, (2, 5), (1, 4)),
}


def groups(seed, many):
    """Predictions of groups, or of one word for each vector, with some weights of 0."""
    random = np.random.default_rng(seed)
    shape = (4, 5, 7) if many else (50, 1, 1)
    words_GM = np.minimum(random.zipf(1.3, (shape[0], shape[2])), WORDS) - 1
    weights_GNM = random.integers(3, size=shape) * random.random(shape)
    hidden_GND = random.normal(size=(*shape[:2], DIM))
    return Predictions(
        tf.constant(hidden_GND, tf.float32),
        tf.constant(words_GM, tf.int32),
        tf.constant(weights_GNM, tf.float32),
    )


def make_step(loss, predictions, by_xla, is_updating):
    """A function from hidden vectors to the loss and its gradients by them, and its variables.

    These are, by table, the gradients by all rows, and how often each row was updated.
    """
    tables = toy.make_tables(loss)
    dense = {n: tf.Variable(tf.zeros_like(t.values), trainable=False) for n, t in tables.items()}
    updated = {n: tf.Variable(tf.zeros(t.rows), trainable=False) for n, t in tables.items()}
    gather = toy.gather_from(tables)

    def add(name, ids_U, gradients_UD):
        dense[name].scatter_add(tf.IndexedSlices(gradients_UD, ids_U))
        updated[name].scatter_add(tf.IndexedSlices(tf.ones(tf.shape(ids_U)), ids_U))

    def update(name, ids_U, rows_UD, gradients_UD):
        add(name, ids_U, gradients_UD)

    @tf.function(autograph=False, jit_compile=by_xla)
    def run(hidden_GND):
        rows = gather_unique(loss.lookups(predictions.targets_GM, 0, tf.zeros(2)), gather)
        values = {name: of_table.values_UD for name, of_table in rows.items()}
        with tf.GradientTape() as tape:
            tape.watch((hidden_GND, values))
            rows = {name: of._replace(values_UD=values[name]) for name, of in rows.items()}
            _, parts = loss.loss(predictions._replace(hidden_GND=hidden_GND), rows)
            hidden = [part.hidden_ND for part in parts]
        found = [
            stream.differentiate(part, gather, update if is_updating else None) for part in parts
        ]
        for part, (*_, by_row) in zip(parts, found, strict=True):
            if by_row:
                add(part.table, *by_row)
        by_hidden = [by_hidden for _, by_hidden, _ in found]
        by_hidden, by_values = tape.gradient(hidden, (hidden_GND, values), by_hidden)
        for name, gradient in by_values.items():
            add(name, rows[name].ids_U, gradient)
        return tf.add_n([value for value, *_ in found]), by_hidden

    return run, dense, updated


def differentiated(loss, predictions, by_xla, is_updating):
    """The loss, its gradients by the vectors and by all rows, and how often a row was updated."""
    run, dense, updated = make_step(loss, predictions, by_xla, is_updating)
    value, by_hidden = run(predictions.hidden_GND)
    return {"loss": value, "hidden": by_hidden} | dense, updated


def _cases():
    """All cases; few of them are quick."""
    quick = "full usual False", "classes tiles True", "adaptive larger than a block False"
    for name, sizes, many in itertools.product(LOSSES, SIZES, (True, False)):
        is_quick = f"{name} {sizes} {many}" in quick
        yield pytest.param(name, sizes, many, marks=[] if is_quick else pytest.mark.slow)


def use(sizes, monkeypatch):
    """Use these sizes."""
    monkeypatch.setattr(softmax, "SCORES", SIZES[sizes][1])  # with more, a full softmax is padded
    names = "_ROWS", "_SCORES", "_PAIRS", "_TILE_ROWS"
    for constant, value in zip(names, SIZES[sizes], strict=True):
        monkeypatch.setattr(padded, constant, value)


@pytest.mark.parametrize(("name", "sizes", "many"), list(_cases()))
def test_the_gradients_are_those_without_xla(name, sizes, many, monkeypatch):
    use(sizes, monkeypatch)
    loss, predictions = LOSSES[name](), groups(0, many)
    is_updating = sizes != "tiles"
    found, updated = differentiated(loss, predictions, True, is_updating)
    expected, touched = differentiated(loss, predictions, False, is_updating)
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, 1e-5, 1e-5, err_msg=key)
    for table, times in touched.items():
        if not table.startswith("projection"):
            np.testing.assert_array_equal(updated[table], times, err_msg=table)


@pytest.mark.parametrize("name", ["classes", pytest.param("adaptive", marks=pytest.mark.slow)])
def test_nan_is_only_where_it_is_without_xla(name, monkeypatch):
    """Of the first pair and of the last row, which padding reads."""
    use("tiles", monkeypatch)
    loss, predictions = LOSSES[name](), groups(0, False)
    is_first = np.argsort(predictions.targets_GM, axis=0, kind="stable")[0]
    hidden_GND = tf.tensor_scatter_nd_update(
        predictions.hidden_GND, is_first[:, None], tf.fill([1, 1, DIM], np.nan)
    )
    predictions = predictions._replace(
        hidden_GND=hidden_GND, weights_GNM=predictions.weights_GNM + 1.0
    )
    tables = toy.make_tables(loss)
    if "output" in tables:
        tables["output"].values[-1].assign(tf.fill([DIM], np.nan))
    monkeypatch.setattr(toy, "make_tables", lambda _: tables)
    found, _ = differentiated(loss, predictions, True, True)
    expected, _ = differentiated(loss, predictions, False, True)
    for key, value in expected.items():
        np.testing.assert_array_equal(np.isnan(found[key]), np.isnan(value), err_msg=key)
    others = ("output", "hidden") if name == "classes" else ("tail1", "tail2", "tail3")
    assert not any(np.isnan(expected[key]).all() for key in others)


@pytest.mark.parametrize(
    ("name", "many", "sizes", "loops", "sorts"),
    [("full", False, "usual", 0, 0), ("classes", True, "usual", 0, 1)]
    # Over blocks, and over chunks of the pairs of a block; twice where a segment is measured first.
    + [("classes", True, "one pair", 3, 1), ("one word a class", True, "one pair", 6, 1)],
)
def test_no_loop_is_over_classes(name, many, sizes, loops, sorts, monkeypatch):
    use(sizes, monkeypatch)
    predictions = groups(0, many)
    run, *_ = make_step(LOSSES[name](), predictions, True, True)
    lowered = run.experimental_get_compiler_ir(predictions.hidden_GND)(stage="hlo")
    found = lowered.count(gpu.LOOP), lowered.count(" sort(")
    assert found == (loops, sorts)
    if name == "full":  # and its vectors, in order, are not read and added by index
        assert lowered.count(" scatter(") == 2, "those of `add`"


@pytest.mark.slow
@pytest.mark.parametrize(("targets", "most"), [(400, 1), (40_000, 50)])
def test_ten_million_words_take_few_blocks(targets, most):
    """Each block is an iteration, of so many numbers at most."""
    words, columns = 10_000_000, 300
    counts_V = 1_000_000_000 // np.arange(10, 10 + words)
    bounds = partition(counts_V, 2, "fewest_rows", 0, targets)[-1]
    chances_P = np.random.default_rng(0).random(targets) * counts_V.sum()
    targets_P = np.sort(np.searchsorted(np.cumsum(counts_V), chances_P)).astype(np.int32)
    segment_P = np.searchsorted(bounds, targets_P, side="right") - 1
    pairs = VectorWordPairs(
        tf.zeros([targets, columns]), None, tf.constant(targets_P), tf.ones([targets])
    )
    segments = PaddedSegments("output", bounds, pairs, tf.constant(segment_P, tf.int32))
    counts_G, iterations = segments._counts_G.numpy(), 0
    for shape in segments._shapes():
        is_in_G = (counts_G > shape.least) & (counts_G <= shape.most)
        iterations += -(-is_in_G[segments._segment_F].sum() // shape.step)
        assert shape.tiles * segments._size * columns <= padded._ROWS
        assert shape.tiles * shape.pairs * max(segments._size, columns) <= padded._SCORES
    assert np.count_nonzero(counts_G) > 300 and 0 < iterations <= most


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("classes", "tiles"), *(pytest.param(n, "usual", marks=pytest.mark.slow) for n in LOSSES)],
)
def test_log_probabilities_are_those_without_xla(name, sizes, monkeypatch):
    use(sizes, monkeypatch)
    loss, targets_N = LOSSES[name](), toy.targets(WORDS)
    gather = toy.gather_from(toy.make_tables(loss))
    run = tf.function(inference.log_probability, autograph=False, jit_compile=True)
    found_N = run(loss, toy.hidden(), targets_N, gather)
    expected_N = inference.log_probability(loss, toy.hidden(), targets_N, gather)
    np.testing.assert_allclose(found_N, expected_N, rtol=1e-5, atol=1e-6)
