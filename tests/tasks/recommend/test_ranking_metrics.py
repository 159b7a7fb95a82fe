"""Metrics of a ranking of all items, against the plain definition user by user."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from app.input.user_item_pairs import KnownItems
from app.losses.user_item_losses import SquaredError
from app.models.recommender import Recommender
from app.models.scorers import MatrixFactorization, Mlp
from app.tables.device import DeviceTable
from app.tasks.recommend import ranking_metrics
from app.tasks.recommend.ranking_metrics import Ranker

USERS, ITEMS, DIM = 25, 30, 3


@pytest.fixture(autouse=True)
def on_the_cpu():
    with tf.device("CPU:0"):
        yield


def ranker(k, scorer=None):
    scorer = scorer or MatrixFactorization(DIM)
    model = Recommender(USERS, ITEMS, scorer, SquaredError(mean=0.5), 1)
    tables = {}
    for number, (name, spec) in enumerate(model.tables().items()):
        # Whole numbers, so that many scores are equal.
        random = np.random.default_rng(number)
        rows = random.integers(-2, 3, (spec.rows, spec.columns)).astype(np.float32)
        tables[name] = DeviceTable(*rows.shape, lambda _, rows=rows: tf.constant(rows))
    return Ranker(model, tables, k), {
        name: table.gather(tf.range(table.rows)).numpy() for name, table in tables.items()
    }


def drawn(seed, most):
    """What each user has, up to so many items: as sets, and as arrays."""
    random = np.random.default_rng(seed)
    sets = [
        set(random.choice(ITEMS, random.integers(0, most + 1), replace=False).tolist())
        for _ in range(USERS)
    ]
    starts = np.cumsum([0, *map(len, sets)])
    return sets, KnownItems(starts, np.array([i for own in sets for i in sorted(own)], np.int32))


def best_by_hand(rows, known, k):
    users, items = rows["users"], rows["items"]
    scores = users[:, :-1] @ items[:, :-1].T + users[:, -1:] + items[:, -1] + 0.5
    best = []
    for user in range(USERS):
        left = [item for item in range(ITEMS) if item not in known[user]]
        best.append(sorted(left, key=lambda item, user=user: (-scores[user, item], item))[:k])
    return best, scores


def found_by(given, users, known):
    blocks = list(given.blocks(np.array(users, np.int32), known))
    return [np.concatenate(parts) for parts in zip(*blocks, strict=True)]


@pytest.mark.parametrize(("scores", "block"), [(ITEMS * 4, 4), (1 << 24, 64)])
def test_the_best_of_all_items(monkeypatch, scores, block):
    monkeypatch.setattr(ranking_metrics, "_SCORES", scores)  # four users at a time, or all
    monkeypatch.setattr(ranking_metrics, "_BLOCK", block)
    given, rows = ranker(5)
    sets, known = drawn(0, ITEMS)
    users = [*range(USERS), 3, 0]
    asked, ids, values = found_by(given, users, known)
    assert asked.tolist() == users
    best, wanted = best_by_hand(rows, sets, 5)
    for user, row, value in zip(users, ids.tolist(), values, strict=True):
        there = [item for item in row if item >= 0]
        assert there == best[user]
        np.testing.assert_allclose(value[: len(there)], wanted[user, there], 1e-5)
        assert row[len(there) :] == [-1] * (5 - len(there))
    _, ids, _ = found_by(given, [4], None)
    assert ids[0].tolist() == best_by_hand(rows, [set()] * USERS, 5)[0][4]


def test_metrics():
    given, rows = ranker(8)
    known_sets, known = drawn(0, 12)
    heldout_sets, heldout = drawn(1, 12)
    found = ranking_metrics.score(given, known, heldout, [1, 3, 8])
    best, _ = best_by_hand(rows, known_sets, 8)
    scored = [user for user in range(USERS) if heldout_sets[user]]
    assert len(scored) < USERS
    for k in (1, 3, 8):
        sums = dict.fromkeys(("recall", "ndcg", "hit_rate", "mrr"), 0.0)
        for user in scored:
            wanted = heldout_sets[user]
            ranks = [rank for rank, item in enumerate(best[user][:k], 1) if item in wanted]
            ideal = sum(1 / np.log2(rank + 1) for rank in range(1, min(len(wanted), k) + 1))
            sums["recall"] += len(ranks) / len(wanted)
            sums["ndcg"] += sum(1 / np.log2(rank + 1) for rank in ranks) / ideal
            sums["hit_rate"] += bool(ranks)
            sums["mrr"] += 1 / ranks[0] if ranks else 0
        for name, value in sums.items():
            np.testing.assert_allclose(found[f"{name}@{k}"], value / len(scored), err_msg=name)
        shown = {item for user in scored for item in best[user][:k]}
        assert found[f"coverage@{k}"] == len(shown) / ITEMS


def test_more_places_than_items():
    given, _ = ranker(99)
    _, known = drawn(0, 2)
    _, heldout = drawn(1, 9)
    everything = ranking_metrics.score(given, None, heldout, [99])
    assert everything["recall@99"] == everything["coverage@99"] == 1
    assert given.k == ITEMS


def test_layers_rank_too():
    given, rows = ranker(4, Mlp(DIM, (6,)))
    hidden = np.maximum(
        (rows["users"] @ rows["layer_0"][:DIM])[:, None]
        + rows["items"] @ rows["layer_0"][DIM:-1]
        + rows["layer_0"][-1],
        0,
    )
    scores = (hidden @ rows["layer_1"])[..., 0] + 0.5
    _, ids, values = found_by(given, range(USERS), None)
    np.testing.assert_array_equal(ids, np.argsort(-scores, axis=1, kind="stable")[:, :4])
    np.testing.assert_allclose(given.ratings(np.arange(5), ids[:5, 0]), values[:5, 0], 1e-5)


def test_errors():
    found = ranking_metrics.rating_errors(np.array([1.0, 2.0, 3.0]), np.array([1, 4, 2]))
    assert found == {"rmse": pytest.approx(np.sqrt(5 / 3)), "mae": 1}
