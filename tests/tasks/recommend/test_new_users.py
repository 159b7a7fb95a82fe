"""Rows of new users: the minimum that they should be at, and the items that they rank first."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from app.errors import UsageError
from app.input.user_item_pairs import KnownItems
from app.losses.sampling import Unigram
from app.losses.user_item_losses import Bpr, SampledItems, SquaredError
from app.models.recommender import Recommender
from app.models.scorers import ItemBiased, MatrixFactorization, Mlp
from app.tables.device import DeviceTable
from app.tasks.recommend.new_users import parse_items, solve_rows
from app.tasks.recommend.ranking_metrics import Ranker
from app.text.vocabulary import Vocabulary

ITEMS, DIM, TEMPERATURE = 12, 4, 0.3
CHOSEN = KnownItems(np.array([0, 2, 5]), np.array([1, 4, 0, 4, 7], np.int32))


def recommender(scorer, loss):
    model = Recommender(6, ITEMS, scorer, loss, seed=1)
    with tf.device("CPU:0"):
        tables = {
            name: DeviceTable(spec.rows, spec.columns, spec.initial)
            for name, spec in model.tables().items()
        }
        return model, tables, Ranker(model, tables, 5)


def sampled_items():
    counts = np.arange(ITEMS, 0, -1)
    start = tf.Variable(np.log(counts).astype(np.float32))
    return SampledItems(Unigram(counts, 3), start, temperature=TEMPERATURE)


@pytest.mark.slow
def test_a_row_is_at_the_minimum_of_the_softmax_over_all_items():
    model, tables, ranker = recommender(ItemBiased(DIM, True, TEMPERATURE), sampled_items())
    rows = solve_rows(model, tables, ranker, CHOSEN)
    items = tables["items"].gather(tf.range(ITEMS)).numpy().astype(np.float64)
    vectors = items[:, :DIM] / np.linalg.norm(items[:, :DIM], axis=1, keepdims=True)

    def loss(row, chosen):
        scores = vectors @ row / np.linalg.norm(row) / TEMPERATURE + items[:, DIM]
        return np.log(np.exp(scores).sum()) - scores[chosen].mean()

    directions = np.random.default_rng(0).normal(size=(500, DIM))
    for row, chosen in zip(rows, ([1, 4], [0, 4, 7]), strict=True):
        found = loss(row, chosen)
        assert found < min(loss(other, chosen) for other in directions) + 1e-3
        near = row + 0.02 * np.linalg.norm(row) * directions[:50]
        assert found < min(loss(other, chosen) for other in near) + 1e-3
    again = solve_rows(model, tables, ranker, CHOSEN)
    np.testing.assert_array_equal(rows, again)
    ((_, ids, _),) = ranker.blocks(np.arange(2, dtype=np.int32), CHOSEN, rows)
    assert not set(ids[0]) & {1, 4} and not set(ids[1]) & {0, 4, 7}


@pytest.mark.slow
@pytest.mark.parametrize("scorer", [MatrixFactorization(DIM), Mlp(DIM, (5, 3))])
def test_any_model_that_ranks_has_rows_for_new_users(scorer):
    """Their items are more probable than by a row of zeros."""
    model, tables, ranker = recommender(scorer, Bpr(1))
    rows = solve_rows(model, tables, ranker, CHOSEN)
    assert rows.shape == (2, scorer.columns[0]) and np.isfinite(rows).all()
    kernels, items_VE = ranker.item_codes()

    def losses(rows):
        scores = scorer.score_all(
            scorer.encode_users(tf.constant(rows), kernels), items_VE, kernels
        )
        log_p = tf.nn.log_softmax(scores).numpy()
        return log_p[0, [1, 4]].mean(), log_p[1, [0, 4, 7]].mean()

    assert np.all(np.array(losses(rows)) > losses(np.zeros_like(rows)))


def test_what_is_refused():
    items = Vocabulary(["a", "b"], np.array([2, 1]), 3)
    for names, message in (
        ([], "^--items names no item"),
        (["a", "b", "a"], "^--items names 'a' twice"),
        (["x", "y"], r"^--items: 2 item\(s\) not in items.tsv: 'x', 'y'; give items of it$"),
    ):
        with pytest.raises(UsageError, match=message):
            parse_items(names, items, "--items", "items.tsv")
    assert parse_items(["b", "a"], items, "--items", "items.tsv").items_N.tolist() == [0, 1]
    assert parse_items(["x", "b"], items, "--items", "items.tsv").items_N.tolist() == [1]
    numbers = Vocabulary(["5800", "17.0"], np.array([2, 1]), 3)  # older workdirs have fractions
    found = parse_items(["5800.0", "17.0"], numbers, "--items", "items.tsv")
    assert found.items_N.tolist() == [0, 1]
    ratings = recommender(MatrixFactorization(DIM), SquaredError(3.0))
    with pytest.raises(UsageError, match="^--items: this model predicts ratings"):
        solve_rows(*ratings, CHOSEN)
