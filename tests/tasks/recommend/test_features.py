"""Recommenders with features, by all kinds of tables, and what new items are recommended by."""

from __future__ import annotations

import dataclasses
import shutil

import numpy as np
import pytest
import tensorflow as tf

from app.checkpoints.workdir import Workdir
from app.errors import DamagedError, UsageError
from app.input.named_features import NO_FEATURES, gather
from app.tasks.recommend import recommend_data, recommend_job, recommend_model
from app.tasks.recommend.ranking_metrics import Ranker
from app.tasks.recommend.spectral_start import divide_by_features
from app.text import vocabulary
from app.training import loop
from tests.tasks.recommend.test_recommend_job import ITEMS, blocks, config_of

ITEM_ROWS = "".join(f"item{item},{item % 4}|x,{item // 30}\n" for item in range(ITEMS + 4))
USER_ROWS = "".join(f"user{user},{user % 4}\n" for user in range(40))


def described(folder, **values):
    (folder / "items.csv").write_text("item,block,half\n" + ITEM_ROWS)
    (folder / "users.csv").write_text("user,block\n" + USER_ROWS)
    files = {f"{kind}_features": str(folder / f"{kind}s.csv") for kind in ("item", "user")}
    usual = {"epochs": 2, "heldout_share": 0.0, "schedule": "constant", "user_pairs": 2}
    usual["steps_per_call"] = 1  # which is traced in less time
    return config_of(folder, blocks(), **usual | files | values)


def train(config):
    workdir = Workdir(config.run.workdir)
    with workdir.lock():
        job = recommend_job.make_job(config, workdir, False)
        job.data.record()
        assert loop.train(job, config.run, workdir)
    return job


def vectors(config):
    found = recommend_model.load_recommender(config, Workdir(config.run.workdir))
    return Ranker(found.model, found.tables, 1).vectors()


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    config = described(tmp_path_factory.mktemp("usual"))
    train(config)
    return config


@pytest.fixture
def copied(usual, tmp_path):
    """The settings of a copy of the run, and its workdir."""
    config = described(tmp_path)
    return config, Workdir(shutil.copytree(usual.run.workdir, config.run.workdir))


@pytest.mark.parametrize(
    ("values", "is_same"),
    [
        ({"table": "host", "hot_rows": 40}, True),
        ({"table": "sharded"}, True),
        ({"micro_batches": 2}, False),
    ],
    ids=lambda values: "-".join(values) if isinstance(values, dict) else "",
)
def test_tables(usual, tmp_path, values, is_same):
    config = described(tmp_path, **values)
    train(config)
    for one, other in zip(vectors(config), vectors(usual), strict=True):
        assert one.shape == other.shape and np.isfinite(one).all()
        if is_same:
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_dynamic_tables(tmp_path):
    """Sums have another order, and Adam would magnify the difference where a gradient is near 0."""
    found = []
    for table in ({"table": "dynamic", "table_gb": 0.01}, {}):
        folder = tmp_path / f"run{len(found)}"
        folder.mkdir()
        config = described(folder, optimizer="sgd", learning_rate=1e-3, epochs=1, **table)
        train(config)
        found.append(vectors(config))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("loss", "optimizer"),
    [
        ("bpr", "ftrl"),
        ("squared_error", "rowwise_adagrad"),
        pytest.param("in_batch_softmax", "ftrl", marks=pytest.mark.slow),
        pytest.param("bpr", "rowwise_adagrad", marks=pytest.mark.slow),
    ],
)
def test_losses_and_optimizers(tmp_path, loss, optimizer):
    """A block is recommended items of its own, the new ones among them."""
    config = described(tmp_path, loss=loss, optimizer=optimizer, learning_rate=0.1, epochs=8)
    if loss == "squared_error":
        text = blocks().replace("\n", " 5\n").replace(" ", ",")
        text += "".join(f"user{u},item{i},1\n" for u in range(48) for i in range(40) if (i + u) % 4)
        (tmp_path / "pairs.txt").write_text("user,item,rating\n" + text)
    train(config)
    users, items = vectors(config)
    found = recommend_model.load_recommender(config, Workdir(config.run.workdir))
    new = [found.items.tokens.index(f"item{item}") for item in range(ITEMS, ITEMS + 4)]
    best = (users @ items[new].T).argmax(axis=1)
    own = np.array([int(name.removeprefix("user")) % 4 for name in found.users.tokens])
    # By chance it is a quarter. Own rows learn much of the ratings themselves.
    assert (best == own).mean() > (0.5 if loss == "squared_error" else 0.9)


def test_a_run_that_goes_on_is_the_same(usual, tmp_path):
    train(described(tmp_path, epochs=1))
    config = described(tmp_path)
    train(config)
    for one, other in zip(vectors(config), vectors(usual), strict=True):
        np.testing.assert_array_equal(one, other)


def test_other_features_are_refused(copied, tmp_path):
    config, workdir = copied
    recommend_job.make_job(config, workdir, False)
    path = tmp_path / "items.csv"
    for text in (path.read_text().replace("item3,3|x", "item3,2"), path.read_text() + "new,1,1\n"):
        path.write_text(text)
        with pytest.raises(UsageError, match="^--item_features: the run .* has other features of"):
            recommend_job.make_job(config, workdir, False)
    none = dataclasses.replace(config.ratings, item_features="", user_features="")
    with pytest.raises(UsageError, match="^--user_features: the run"):
        recommend_job.make_job(dataclasses.replace(config, ratings=none), workdir, False)


def test_files_of_a_run_that_broke_off_do_not_matter(tmp_path, monkeypatch):
    """They are written anew as long as there is no checkpoint, also without features."""
    config, names = described(tmp_path), tmp_path / "items.csv"
    workdir = Workdir(config.run.workdir)
    with monkeypatch.context() as context, workdir.lock():
        context.setattr(vocabulary, "_LONGEST_NAME", 6)  # `block=x` has 7
        with pytest.raises(UsageError, match="has more than 6 bytes"):
            recommend_job.make_job(config, workdir, False).data.record()
    assert not workdir.items.exists() and not workdir.users.exists()
    with workdir.lock():
        recommend_job.make_job(config, workdir, False).data.record()
    names.write_text(names.read_text().replace("item3,3|x", "item3,2"))
    with workdir.lock():
        job = recommend_job.make_job(config, workdir, False)
        job.data.record()
    assert not any(spec.by_frequency for spec in job.model.tables().values())
    ratings = dataclasses.replace(config.ratings, item_features="", user_features="")
    config = dataclasses.replace(config, ratings=ratings)
    workdir.items.unlink()  # it has the new items
    workdir.users.unlink()
    job = recommend_job.make_job(config, workdir, False)
    job.data.record()
    assert recommend_data.load_features(workdir) == NO_FEATURES
    assert all(spec.by_frequency for spec in job.model.tables().values())


def test_all_are_added_or_none(copied, tmp_path):
    usual, workdir = copied
    ratings = usual.ratings
    (tmp_path / "users.csv").write_text("user,block\nmore,1\n")
    given = {kind: str(tmp_path / f"{kind}s.csv") for kind in ("user", "item")}
    for text, message in (("item9,9\n", "^'item9': the item is known"), ("\n", "no row below")):
        (tmp_path / "items.csv").write_text("item,block\n" + text)
        with pytest.raises(UsageError, match=message):
            recommend_data.add(ratings, workdir, given)
        assert not workdir.added.exists()
    (tmp_path / "items.csv").write_text("item,block\nmore,1|of training has none\n")
    recommend_data.add(ratings, workdir, given)
    found = recommend_model.load_recommender(usual, workdir)
    assert found.items.tokens[-1] == found.users.tokens[-1] == "more"
    assert recommend_data.add(ratings, workdir, given)["items"].keys() == {"more"}  # as before
    for path, text, message in (
        ("users.csv", "user,block\nmore,0\n", "^'more': the user is known already, with other"),
        ("items.csv", 'item,block\n"a\nb",1\n', "has a line break, which items.tsv cannot have"),
    ):
        (tmp_path / path).write_text(text)
        with pytest.raises(UsageError, match=message):
            recommend_data.add(ratings, workdir, {path[:4]: str(tmp_path / path)})
    for text in ("{", '{"items": {"more": "block=1"}}'):
        workdir.added.write_text(text)
        with pytest.raises(DamagedError, match="added.json"):
            recommend_model.load_recommender(usual, workdir)


def test_damaged_features(copied):
    config, workdir = copied
    for name in ("features.npz", "item_features.tsv", "items.tsv"):
        path = workdir.path / name
        lines = path.read_bytes()
        path.write_bytes(b"".join(lines.splitlines(True)[1:]))
        with pytest.raises(DamagedError, match="damaged|missing"):
            recommend_model.load_recommender(config, workdir)
        path.unlink()
        with pytest.raises(DamagedError, match="damaged|missing"):
            recommend_model.load_recommender(config, workdir)
        path.write_bytes(lines)


def test_a_start_is_divided_without_a_rest():
    """The rows of each item add up to its vector; those of features are a ridge regression."""
    random = np.random.default_rng(0)
    by_name = {f"i{n}": [f"f{f}" for f in random.choice(6, 2, replace=False)] for n in range(50)}
    found = gather({**by_name, "new": ["f1"]}, [*by_name, "i50", "new"], trained=51)
    vectors_VK = random.normal(size=(51, 3)).astype(np.float32)
    rows = divide_by_features(vectors_VK, found)
    rows_N, starts, count = found.table_rows(51)
    sums = np.add.reduceat(rows[rows_N], starts[:-1])
    assert rows.shape == (count, 3)
    np.testing.assert_allclose(sums[:51], vectors_VK, rtol=1e-4, atol=1e-5)
    design = np.zeros((51, 6), np.float32)
    owners, ids = found.pairs
    design[owners[owners < 51], ids[owners < 51]] = 1
    centred = vectors_VK - vectors_VK.mean(axis=0)
    expected = np.linalg.solve(design.T @ design + np.eye(6), design.T @ centred)
    np.testing.assert_allclose(rows[52:], expected, rtol=1e-3, atol=1e-4)


def planted(random, users=400, items=500, tags=40, dim=8):
    """Pairs of users and the items that they like, by tags; and the tags of each item."""
    tags_of = [random.choice(tags, random.integers(2, 5), replace=False) for _ in range(items)]
    of_tags = random.normal(size=(tags, dim))
    of_items = np.stack([of_tags[some].sum(axis=0) for some in tags_of])
    scores = random.normal(size=(users, dim)) @ of_items.T + random.normal(size=items)
    scores += 2 * random.gumbel(size=scores.shape)
    best = np.argpartition(-scores, 30, axis=1)[:, :30]
    return [(user, item) for user in range(users) for item in best[user]], tags_of


@pytest.mark.slow
def test_new_items_are_recommended_better_than_by_popularity(tmp_path):
    """A fifth of the items have no pair: by their counts of 0, popularity ranks them by chance.

    The other popularity knows the held-out pairs.
    """
    random = np.random.default_rng(0)
    pairs, tags_of = planted(random)
    is_new = random.random(len(tags_of)) < 0.2
    write = {"known": [], "new": []}
    for user, item in pairs:
        write["new" if is_new[item] else "known"].append(f"u{user},i{item}\n")
    (tmp_path / "heldout.csv").write_text("user,item\n" + "".join(write["new"]))
    config = described(tmp_path, heldout_share=0.05, epochs=4, dim=32, learning_rate=0.0)
    (tmp_path / "pairs.txt").write_text("user,item\n" + "".join(write["known"]))
    rows = (f"i{item},{'|'.join(map(str, some))}\n" for item, some in enumerate(tags_of))
    (tmp_path / "items.csv").write_text("item,tags\n" + "".join(rows))
    ratings = dataclasses.replace(config.ratings, user_features="")
    config = dataclasses.replace(config, ratings=ratings)
    train(config)
    found = recommend_model.load_recommender(config, Workdir(config.run.workdir))
    users, items = Ranker(found.model, found.tables, 1).vectors()
    names = np.array(found.items.tokens)
    new = np.flatnonzero([is_new[int(name[1:])] for name in names])
    liked = {(f"u{user}", f"i{item}") for user, item in pairs if is_new[item]}
    counts = {item: sum(one == item for _, one in liked) for item in names[new]}

    def recall(order_UV):
        hits = [
            sum((user, names[item]) in liked for item in order_K[:20])
            for user, order_K in zip(found.users.tokens, order_UV, strict=True)
        ]
        return sum(hits) / len(liked)

    popular = new[np.argsort([-counts[name] for name in names[new]])]
    scores = (tf.constant(users) @ tf.transpose(items)).numpy()[:, new]
    by_features = recall(new[np.argsort(-scores, axis=1)])
    by_popularity = recall(np.tile(popular, (len(users), 1)))
    by_chance = recall(np.stack([random.permutation(new) for _ in users]))
    assert by_features > 1.5 * by_popularity and by_features > 3 * by_chance
