"""Metrics of a ranking of all items, against the plain definition user by user."""

import numpy as np
import pytest
import tensorflow as tf

from app.errors import UsageError
from app.input.user_item_pairs import KnownItems
from app.losses.sampling import Unigram
from app.losses.user_item_losses import Bpr, SampledItems, SquaredError
from app.models.recommender import Recommender
from app.models.scorers import ItemBiased, MatrixFactorization
from app.tables.device import DeviceTable
from app.tasks.recommend import ranking_metrics
from app.tasks.recommend.new_users import parse_items, solve_row
from app.tasks.recommend.ranking_metrics import Ranker
from app.text.vocabulary import Vocabulary

USERS, ITEMS, DIM = 25, 30, 3


pytestmark = pytest.mark.usefixtures("on_the_cpu")


def ranker(k):
    model = Recommender(USERS, ITEMS, MatrixFactorization(DIM), SquaredError(mean=0.5), 1)
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


def test_errors():
    found = ranking_metrics.rating_errors(np.array([1.0, 2.0, 3.0]), np.array([1, 4, 2]))
    assert found == {"rmse": pytest.approx(np.sqrt(5 / 3)), "mae": 1}


# Rows of new users: the minimum that they should be at, and the items that they rank first.


NEW_ITEMS, NEW_DIM, TEMPERATURE = 12, 4, 0.3
CHOSEN = [np.array([1, 4], np.int32), np.array([0, 4, 7], np.int32)]
NONE = np.zeros(0, np.int32)


def recommender(scorer, loss):
    model = Recommender(6, NEW_ITEMS, scorer, loss, seed=1)
    with tf.device("CPU:0"):
        tables = {
            name: DeviceTable(spec.rows, spec.columns, spec.initial)
            for name, spec in model.tables().items()
        }
        return model, tables, Ranker(model, tables, 5)


def sampled_items():
    counts = np.arange(NEW_ITEMS, 0, -1)
    start = tf.Variable(np.log(counts).astype(np.float32))
    return SampledItems(Unigram(counts, 3), start, temperature=TEMPERATURE)


@pytest.mark.slow
def test_a_row_is_at_the_minimum_of_the_softmax_over_all_items():
    model, tables, ranker = recommender(ItemBiased(NEW_DIM, True, TEMPERATURE), sampled_items())
    rows = np.concatenate([solve_row(model, tables, ranker, one, NONE) for one in CHOSEN])
    items = tables["items"].gather(tf.range(NEW_ITEMS)).numpy().astype(np.float64)
    vectors = items[:, :NEW_DIM] / np.linalg.norm(items[:, :NEW_DIM], axis=1, keepdims=True)

    def loss(row, chosen):
        scores = vectors @ row / np.linalg.norm(row) / TEMPERATURE + items[:, NEW_DIM]
        return np.log(np.exp(scores).sum()) - scores[chosen].mean()

    directions = np.random.default_rng(0).normal(size=(500, NEW_DIM))
    for row, chosen in zip(rows, CHOSEN, strict=True):
        found = loss(row, chosen)
        assert found < min(loss(other, chosen) for other in directions) + 1e-3
        near = row + 0.02 * np.linalg.norm(row) * directions[:50]
        assert found < min(loss(other, chosen) for other in near) + 1e-3
    again = solve_row(model, tables, ranker, CHOSEN[0], NONE)
    np.testing.assert_array_equal(rows[:1], again)
    known = KnownItems(np.array([0, 2, 5]), np.concatenate(CHOSEN))
    ((_, ids, _),) = ranker.blocks(np.arange(2, dtype=np.int32), known, rows)
    assert not set(ids[0]) & {1, 4} and not set(ids[1]) & {0, 4, 7}


@pytest.mark.slow
def test_a_model_that_learns_ranks_has_rows_for_new_users():
    """Their items are more probable than by a row of zeros."""
    scorer = MatrixFactorization(NEW_DIM)
    model, tables, ranker = recommender(scorer, Bpr(1))
    rows = np.concatenate([solve_row(model, tables, ranker, one, NONE) for one in CHOSEN])
    assert rows.shape == (2, scorer.columns[0]) and np.isfinite(rows).all()

    def losses(rows):
        scores = scorer.encode_users(tf.constant(rows)) @ tf.transpose(ranker.item_codes())
        log_p = tf.nn.log_softmax(scores).numpy()
        return log_p[0, [1, 4]].mean(), log_p[1, [0, 4, 7]].mean()

    assert np.all(np.array(losses(rows)) > losses(np.zeros_like(rows)))


def test_what_is_refused():
    items = Vocabulary(["a", "b"], np.array([2, 1]), 3)
    for names, message in (
        ([], "^--items names no item"),
        (["a", "b", "a"], "^--items names 'a' twice"),
        (["x", "y"], r"^--items: 2 item\(s\) not known to items.tsv: 'x', 'y'; give items of it$"),
    ):
        with pytest.raises(UsageError, match=message):
            parse_items(names, items, "--items", "items.tsv")
    assert parse_items(["b", "a"], items, "--items", "items.tsv").tolist() == [0, 1]
    assert parse_items(["x", "b"], items, "--items", "items.tsv").tolist() == [1]
    numbers = Vocabulary(["5800", "17.0"], np.array([2, 1]), 3)  # older workdirs have fractions
    found = parse_items(["5800.0", "17.0"], numbers, "--items", "items.tsv")
    assert found.tolist() == [0, 1]
    ratings = recommender(MatrixFactorization(NEW_DIM), SquaredError(3.0))
    with pytest.raises(UsageError, match="^--items: this model predicts ratings"):
        solve_row(*ratings, CHOSEN[0], NONE)
