"""Recommenders in Python."""

from __future__ import annotations

import io
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import sparse

import app as lexrow
from app import items as module
from app.items import Items, _find_columns
from app.tasks.recommend import recommend_model
from tests import examples

FAST = {"dim": 8, "epochs": 3, "min_count": 1, "heldout_share": 0.0, **examples.QUICK}
# Even users choose even items, odd users odd ones, each but one of them.
PAIRS = [(u, i) for u in range(24) for i in range(u % 2, 12, 2) if i // 2 != u // 2 % 6]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Items:
    path = tmp_path_factory.mktemp("door") / "run"
    return lexrow.train_recommender(PAIRS, workdir=path, **FAST)


def test_examples(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples.run(module, {"items": trained})
    examples.run(Items.load, {"Items": Items, "items": trained})


def test_recommending(trained):
    assert sorted(map(int, trained.items)) == list(range(12))
    assert sorted(map(int, trained.users)) == list(range(24))
    best = trained.recommend([0, "3"], k=1)
    assert [pairs[0][0] for pairs in best] == ["0", "3"]  # the one that each has not chosen
    known = {str(i) for u, i in PAIRS if u == 0}
    assert not known & {item for item, _ in trained.recommend(0, k=12)}
    assert known <= {item for item, _ in trained.recommend(0, k=12, include_known=True)}
    assert trained.recommend(0, k=1, exclude=[0])[0][0] != "0"
    assert trained.recommend([], k=2) == []


def test_each_format_has_the_vectors_that_cosines_are_of(trained, tmp_path):
    tensors = pytest.importorskip("safetensors.numpy")
    for name in ("word2vec", "safetensors", "parquet"):
        trained.export(tmp_path / name, name)
    expected = trained.item_vectors[:, :-1]  # without the bias
    np.testing.assert_allclose(np.linalg.norm(expected, axis=1), 1, rtol=1e-6)
    written = [
        lexrow.load(tmp_path / "word2vec").vectors,
        tensors.load_file(tmp_path / "safetensors")["vectors"],
        np.stack(pd.read_parquet(tmp_path / "parquet")["vector"]),
    ]
    for found in written:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_candidates_have_the_scores_of_the_ranking(trained):
    scores = dict(trained.recommend(1, k=12))
    found = trained.recommend(1, k=3, candidates=[1, 2, 4, 5, 0])
    expected = sorted(scores[item] for item in ("1", "2", "4", "0") if item in scores)[::-1][:3]
    np.testing.assert_allclose([score for _, score in found], expected, rtol=1e-4)


def test_similar_items_and_users(trained):
    vectors = trained.item_vectors
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    row = trained.items.index("4")
    found = trained.similar_items(4, k=3)
    cosines = np.sort(np.delete(unit @ unit[row], row))[::-1][:3]
    np.testing.assert_allclose([cosine for _, cosine in found], cosines, rtol=1e-4)
    assert {int(item) % 2 for item, _ in found} == {0}
    assert {int(user) % 2 for user, _ in trained.similar_users(5, k=3)} == {1}


def test_a_new_person_gets_items_like_those_that_were_chosen(trained):
    found = trained.recommend_for([0, 2, 4], k=3)
    assert {int(item) % 2 for item, _ in found} == {0}
    assert not {"0", "2", "4"} & {item for item, _ in found}


def test_tables_and_arrays_give_the_same(trained, tmp_path):
    table = pa.table({"what": [i for _, i in PAIRS], "who": [u for u, _ in PAIRS]})
    frame = pd.DataFrame(PAIRS, columns=["who", "what"]).assign(note="x")
    columns = {"user_column": "who", "item_column": "what"}
    matrix = sparse.coo_matrix((np.ones(len(PAIRS)), np.transpose(PAIRS)))
    by_frame = lexrow.train_recommender(frame, workdir=tmp_path / "run", **columns, **FAST)
    np.testing.assert_array_equal(by_frame.item_vectors, trained.item_vectors)

    def written(pairs, **columns):
        file = io.StringIO()
        module._write_pairs(file, pairs, columns)
        return file.getvalue().encode()

    pairs = (Path(trained.workdir) / "pairs.csv").read_bytes()
    assert written(frame, **columns) == written(table, **columns) == pairs
    assert written(np.array(PAIRS)) == pairs
    numbers = written([(*pair, 1.0) for pair in PAIRS])
    assert written(matrix) == written(matrix.astype(bool)) == numbers


GENRES = {i: ["even" if i % 2 == 0 else "odd"] for i in range(14)}
KINDS = pd.DataFrame({"user": range(26), "kind": [["even", "odd"][u % 2] for u in range(26)]})


@pytest.fixture(scope="module")
def described(tmp_path_factory) -> Items:
    path = tmp_path_factory.mktemp("described") / "run"
    features = {"item_features": GENRES, "user_features": KINDS}
    return lexrow.train_recommender(PAIRS, workdir=path, **features, **FAST)


def parity(ranked):
    return {int(name) % 2 for name, _ in ranked}


def test_features_place_items_and_users_without_pairs(described, tmp_path):
    assert described.items[12:] == ["12", "13"] and described.users[24:] == ["24", "25"]
    assert parity(described.recommend(25, k=6)) == {1} == parity(described.similar_users(25, k=5))
    assert parity(described.similar_items(12, k=5)) == {0}
    assert "13" in {name for name, _ in described.recommend(1, k=3)}
    scores = described.evaluate([(1, 13), (25, 3), (0, 12)], top="6")
    assert scores["pairs"] == 3 and scores["recall@6"] == 1.0
    again = lexrow.load(described.workdir)
    np.testing.assert_array_equal(again.item_vectors, described.item_vectors)
    described.export(tmp_path / "items.parquet", "parquet")  # whose vectors are of any length
    rows = np.stack(pd.read_parquet(tmp_path / "items.parquet")["vector"])
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    np.testing.assert_allclose(unit, described.item_vectors[:, :-1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["mapping", "columns", "pandas", "pyarrow", "csv"])
def test_adding(described, tmp_path, kind):
    items = pickle.loads(pickle.dumps(described))  # a run of its own, to add to
    features = {
        "mapping": {"a": ["odd", "what"], "b": []},
        "columns": {"a": {"features": "odd|what"}, "b": {"features": float("nan")}},
        "pandas": pd.DataFrame({"item_id": ["a", "b"], "features": [["odd", "odd"], None]}),
        "pyarrow": pa.table({"item": ["a", "b"], "features": [["odd"], []]}),
        "csv": tmp_path / "new.csv",
    }[kind]
    (tmp_path / "new.csv").write_text("item,features\na,odd\nb,\n")
    before = items.recommend(1, k=3, candidates=[13])
    items.add_items(features)
    assert items.items[-2:] == ["a", "b"] and len(items) == 16 and "a" in items
    assert dict(items.recommend(1, k=16))["a"] == pytest.approx(before[0][1], rel=1e-5)
    assert items.similar_items("a", k=1)[0][1] == pytest.approx(1)
    items.add_users({"new": {"kind": "even"}})
    again = lexrow.load(items.workdir)
    assert (again.items, again.users) == (items.items, items.users)
    np.testing.assert_array_equal(again.item_vectors, items.item_vectors)
    assert parity(items.recommend("new", k=5, exclude=["a", "b"])) == {0}
    assert items.evaluate([("new", "b")], top="16")["recall@16"] == 1.0


def test_a_recommender_is_pickled_with_what_was_added(described):
    again = pickle.loads(pickle.dumps(described))
    assert again.items == described.items and again.workdir != described.workdir
    assert again.recommend(1) == described.recommend(1)
    again.add_items({"a": ["odd"]})
    assert pickle.loads(pickle.dumps(again)).items[-1] == "a" == again.items[-1]
    assert "a" not in lexrow.load(described.workdir)


def test_adding_again_changes_nothing_and_reads_no_model(described, monkeypatch):
    items = pickle.loads(pickle.dumps(described))
    monkeypatch.setattr(recommend_model, "load_recommender", None)
    items.add_items({"a": ["odd", "what"]})
    before = (Path(items.workdir) / "added.json").read_bytes()
    items.add_items({3: ["odd"], "a": ["odd"]})  # both are known
    assert (Path(items.workdir) / "added.json").read_bytes() == before
    with pytest.raises(ValueError, match="^'a': the item is known already, with other features"):
        items.add_items({"b": ["odd"], "a": ["even"]})
    assert items.items[-1] == "a"
    items.add_items({"a": ["odd"], "b": ["even"]})
    assert items.items[-2:] == ["a", "b"]


def test_what_is_added_beside_a_folder_that_cannot_be_written(described, tmp_path, monkeypatch):
    items = pickle.loads(pickle.dumps(described))
    run, shared = items._run, Path(items.workdir)  # a temporary one goes with its run
    items.add_items({"a": ["odd"]})
    before = {path: path.read_bytes() for path in shared.rglob("*") if path.is_file()}
    monkeypatch.setattr(module.os, "access", lambda path, mode: Path(path) != shared)
    items.add_items({"b": ["even"]})
    items.add_users({"new": ["even"]})
    assert {path: path.read_bytes() for path in shared.rglob("*") if path.is_file()} == before
    assert items.items[-2:] == ["a", "b"] and items.users[-1] == "new"
    items.export(tmp_path / "vectors", "vectors")
    assert (tmp_path / "vectors" / "items.tsv").read_text().split("\n")[-2].startswith("b")
    again = pickle.loads(pickle.dumps(items))
    np.testing.assert_array_equal(again.item_vectors, items.item_vectors)
    assert again.users == items.users and run is not items._run


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({3: ["even"]}, "^'3': the item is known already, with other features; leave it out"),
        ({}, "^features has no row"),
        (7, "^features is int; give a table, a mapping"),
        (pd.DataFrame({"a": [1]}), "^features: no column names the items among a; name one"),
        ({"": ["odd"]}, "^features, row 1: the item has no name"),
        ({"x": {"features": {"a": 1}}}, "features is {'a': 1}; give text, a number"),
    ],
)
def test_bad_features(described, features, message):
    with pytest.raises(ValueError, match=message):
        described.add_items(features)


def test_features_that_training_cannot_use(trained):
    with pytest.raises(ValueError, match="trained without features of items; train with"):
        trained.add_items({"x": ["odd"]})
    with pytest.raises(FileNotFoundError, match="item_features=no-such.csv: no such file"):
        lexrow.train_recommender(PAIRS, item_features="no-such.csv", **FAST)
    with pytest.raises(ValueError, match="^item_features: no item of the pairs has a feature ther"):
        lexrow.train_recommender(PAIRS, item_features={"x": ["odd"], 1: None}, **FAST)
    with pytest.raises(ValueError, match="^item_features: no column names the items among a; name"):
        lexrow.train_recommender(PAIRS, item_features=pd.DataFrame({"a": [1]}), **FAST)
    with pytest.raises(ValueError, match="^item_features, row 2: x is {}; give text, a number"):
        lexrow.train_recommender(PAIRS, item_features={1: [], "x": {"x": {}}}, **FAST)
    with pytest.raises(ValueError, match="the features have the columns features, item"):
        lexrow.train_recommender(PAIRS, item_features=GENRES, text_features="t", **FAST)
    with pytest.raises(ValueError, match="text_features=t means nothing without item_features"):
        lexrow.train_recommender(PAIRS, text_features="t", **FAST)


@pytest.mark.slow
def test_disliked_items(tmp_path):
    """Whoever dislikes an item is not recommended it, and ranks it lower than without that."""
    rated = [(u, i, 1) for u, i in PAIRS] + [(u, (u + 4) % 12, -1) for u in range(24)]
    rated = list({pair[:2]: pair for pair in rated}.values())
    disliked = [pair[:2] for pair in rated if pair[2] < 0]
    longer = FAST | {"epochs": 40}  # of one step each
    items = lexrow.train_recommender(rated, workdir=tmp_path / "run", **longer)
    plain = lexrow.train_recommender([pair for pair in rated if pair[2] > 0], **longer)

    def mean_score(of):
        return np.mean([of.recommend(u, 1, [i], include_known=True)[0][1] for u, i in disliked])

    assert mean_score(items) < mean_score(plain) - 0.1
    assert str(disliked[0][1]) not in dict(items.recommend(disliked[0][0], k=12))


def test_a_new_person_dislikes_items(trained):
    before = dict(trained.recommend_for([0, 2], k=12, include_known=True))
    after = dict(trained.recommend_for([0, 2], k=12, include_known=True, disliked=[4, 6]))
    assert after["4"] < before["4"] and after["6"] < before["6"]
    assert not {"0", "4"} & {item for item, _ in trained.recommend_for([0], k=12, disliked=[4])}
    with pytest.raises(ValueError, match="disliked names an item that items names, too"):
        trained.recommend_for([1], disliked=[1])


def test_evaluating(trained):
    scores = trained.evaluate([(0, 0), (1, 1), (5, 5), ("new", 3)], top=np.array([1, 3]))
    assert scores["pairs"] == 3 and scores["users"] == 3
    assert scores["recall@1"] == 1.0
    assert not list(Path(trained.workdir).glob("scored*"))  # nothing is left there
    again = lexrow.load(trained.workdir)
    assert again.evaluate(np.array([(0, 0), (1, 1), (5, 5)]), top="1,3")["recall@1"] == 1.0


def test_evaluating_pairs_after_training_on_ratings(tmp_path):
    path, settings = tmp_path / "run", {**FAST, "score_users": "1"}
    items = lexrow.train_recommender([(*one, 1, 5) for one in PAIRS], workdir=path, **settings)
    scores = items.evaluate([(0, 0), (1, 1), (5, 5)], top="3")
    assert scores == items.evaluate([(0, 0, 1), (1, 1, 1), (5, 5, 1)], top=3)
    alone = [items.evaluate([pair], top="3")["ndcg@3"] for pair in [(0, 0), (1, 1), (5, 5)]]
    assert scores["ndcg@3"] == pytest.approx(np.mean(alone))  # of all users
    with pytest.raises(ValueError, match="^pairs: nothing to score; 1 left out"):
        items.evaluate([("new", 3)])
    with pytest.raises(ValueError, match="^'foo' is no setting"):
        items.evaluate([(0, 0)], foo="x")


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([], "pairs has no pair"),
        (3, "pairs is int"),
        ("u,i\n1,2\n", r"^pairs is a text of 8 .*; give a list of \(user, item\)$"),
        ([(1,)], r"pairs\[0\] is \(1,\); give one of a user and an item$"),
        ([(1, 2), (3, 4, 5)], r"pairs\[1\] is \(3, 4, 5\); give one with 2 values"),
        ([(1, 2, float("nan"))], "a value is missing"),
        ([(1, None)], "a value is missing"),
        ([(1, pd.NA)], "a value is missing"),
        (np.eye(8), r"^pairs\[0\] is array\(\[1\., .*; give one of a user and an item$"),
        ([("", 1)], r"^pairs\[0\]: the name of a user is empty"),
        ([(1, 2, 5), (1, 3, "good")], r"^pairs\[1\]: 'good' is not a rating; correct"),
    ],
)
def test_bad_pairs(pairs, message):
    with pytest.raises(ValueError, match=message):
        lexrow.train_recommender(pairs)


def test_bad_columns():
    frame = pd.DataFrame({"a": [1], "b": [2]})
    for table in (frame, pa.table(frame)):
        with pytest.raises(ValueError, match="pairs has no column 'c'; it has a, b"):
            lexrow.train_recommender(table, user_column="c", item_column="b")


@pytest.mark.parametrize(
    ("names", "settings", "columns"),
    [
        ("a b c", {}, {"user": "a", "item": "b", "rating": "c"}),
        ("item_id userId plays", {}, {"user": "userId", "item": "item_id", "rating": "plays"}),
        ("user_id item_id time", {}, {"user": "user_id", "item": "item_id", "time": "time"}),
        ("x y movieId z user", {}, {"user": "user", "item": "movieId"}),
        ("a b c user", {"time_column": "c", "item_column": "a"}, {"item": "a", "time": "c"}),
        (
            "user item_id rating when",
            {"time_column": "when"},
            {"user": "user", "item": "item_id", "rating": "rating", "time": "when"},
        ),
        ("a user", {}, None),
        ("a b c d e", {}, None),
    ],
)
def test_columns_of_a_table(names, settings, columns):
    if columns is None:
        with pytest.raises(ValueError, match="name those of users and items by user_column and"):
            _find_columns(names.split(), settings)
    else:
        assert _find_columns(names.split(), settings) == {"user": "user", **columns}


def test_one_item_is_a_list_of_one(trained):
    assert trained.recommend_for("11", k=2) == trained.recommend_for(["11"], k=2)
    assert trained.recommend(0, k=3, exclude=5) == trained.recommend(0, k=3, exclude=[5])


def test_bad_questions(trained):
    with pytest.raises(KeyError, match="'99': unknown user; give one of"):
        trained.recommend(99)
    with pytest.raises(KeyError, match="'x': unknown item; give one of the training pairs"):
        trained.similar_items("x")
    with pytest.raises(TypeError, match="^k is csr_matrix; give a whole number$"):
        trained.recommend(3, sparse.csr_matrix((1, 1)))
    with pytest.raises(ValueError, match="items has no item"):
        trained.recommend_for([])
    for ask in (trained.recommend, trained.similar_items, trained.similar_users):
        for k in (0, -3):
            with pytest.raises(ValueError, match=f"^k={k}: ask for at least one"):
                ask(0, k=k)


def test_exports(trained, tmp_path):
    trained.export(tmp_path / "vectors")
    np.testing.assert_array_equal(np.load(tmp_path / "vectors/items.npy"), trained.item_vectors)
    trained.export(tmp_path / "items.safetensors", "safetensors")
    assert (tmp_path / "items.safetensors").exists()
    with pytest.raises(ValueError, match="^format=fasttext: no format of task=recommend; "):
        trained.export(tmp_path / "model", "fasttext")
    with pytest.raises(ValueError, match="pairs.csv belongs to the run"):
        trained.export(Path(trained.workdir) / "pairs.csv", "safetensors")


def test_other_pairs_are_refused_and_those_of_the_run_are_kept(tmp_path):
    pairs = [(user, item) for user in range(20) for item in range(user % 2, 10, 2)]
    kinds = {item: ["even" if item % 2 == 0 else "odd"] for item in range(10)}
    lexrow.train_recommender(pairs, item_features=kinds, workdir=tmp_path, **FAST)
    names = "pairs.csv", "items.jsonl"
    before = [(tmp_path / name).read_bytes() for name in names]
    for given in (pairs[:50], [(1,)]):
        with pytest.raises(ValueError, match="is not what workdir=.* was made|give one of a user"):
            lexrow.train_recommender(given, item_features={1: ["x"]}, workdir=tmp_path, **FAST)
        assert [(tmp_path / name).read_bytes() for name in names] == before
    assert not [*tmp_path.glob("*.earlier")]
