"""Vectors of items in files, and an index of them."""

import json
import sys
import tracemalloc

import numpy as np
import pytest

from app.errors import RunError, UsageError
from app.tasks.recommend import item_export

faiss = pytest.importorskip("faiss")


def drawn(rows, seed):
    return np.random.default_rng(seed).normal(size=(rows, 8)).astype(np.float32)


def test_vectors_with_their_keys(tmp_path):
    vectors = {"users": (["u", "v w"], drawn(2, 0)), "items": (["x", "y", "z"], drawn(3, 1))}
    for _ in range(2):  # again over the first
        item_export.write_vectors(tmp_path / "out", vectors, {"mean": 0.5})
    for name, (keys, matrix) in vectors.items():
        np.testing.assert_array_equal(np.load(tmp_path / "out" / f"{name}.npy"), matrix)
        assert (tmp_path / "out" / f"{name}.tsv").read_text().splitlines() == keys
    assert json.loads((tmp_path / "out" / "vectors.json").read_text()) == {"mean": 0.5}
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine").write_text("")
    with pytest.raises(UsageError, match="holds other files"):
        item_export.write_vectors(tmp_path / "other", vectors, {})


def trained(rows, users=500, columns=32):
    """Users and items as training leaves them: unit vectors, and larger biases of few items."""
    draw = np.random.default_rng(rows)
    tastes = draw.normal(size=(60, columns))

    def directions(count):
        near = tastes[draw.integers(60, size=count)] + draw.normal(size=(count, columns))
        return near / np.linalg.norm(near, axis=1, keepdims=True)

    biases = 1.5 + 4 * draw.random(rows) ** 6
    return (
        np.column_stack([directions(users), np.full(users, 0.12)]).astype(np.float32),
        np.column_stack([directions(rows), biases]).astype(np.float32),
    )


def share_found(path, users, items, k=20):
    """The share of the k best items of users that a search of the file finds, against numpy."""
    _, found = faiss.read_index(str(path)).search(users, k)
    best = np.argpartition(users @ items.T, -k, axis=1)[:, -k:]
    return np.mean([len(np.intersect1d(*rows)) for rows in zip(found, best, strict=True)]) / k


@pytest.mark.parametrize(
    ("rows", "is_in_lists"),
    [
        (200, False),
        (3583, False),
        (3583, True),
        pytest.param(200_000, False, marks=pytest.mark.slow),
        pytest.param(200_000, True, marks=pytest.mark.slow),
    ],
)
def test_an_index_finds_the_best_items(tmp_path, monkeypatch, rows, is_in_lists):
    if is_in_lists:
        monkeypatch.setattr(item_export, "_MANY", rows)
    users, items = trained(rows)
    said = item_export.write_faiss(tmp_path / "index", users, items)
    found = share_found(tmp_path / "index", users, items)
    assert found >= 0.99 and f"finds {found:.1%} of the best 20 items of 500 users" in said
    index = faiss.read_index(str(tmp_path / "index"))
    scores, best = index.search(users[:5], 3)
    expected = np.take_along_axis(users[:5] @ items.T, best, axis=1)
    np.testing.assert_allclose(scores, expected, rtol=1e-5)
    if is_in_lists:
        assert f"{index.nlist:,} lists, {index.nprobe:,} of them searched" in said
        assert index.nprobe < index.nlist / 2
    else:
        assert said.startswith("searched whole; ")


def test_items_of_one_score_are_as_good(tmp_path):
    """A user whose best item has forty copies can be given any of them."""
    users, items = drawn(30, 0), np.repeat(drawn(5, 1), 40, axis=0)
    assert "finds 100.0% of" in item_export.write_faiss(tmp_path / "index", users, items)


def test_an_index_that_finds_too_little_is_not_written(tmp_path):
    users, items = drawn(40, 0), drawn(300, 1)
    items[::2] = np.nan
    with pytest.raises(RunError, match="index: not written, as the index finds 0.0% of the best 2"):
        item_export.write_faiss(tmp_path / "index", users, items)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("rows", [3, 3000])
def test_an_index_on_a_full_disk(tmp_path, limited, rows):
    limited(100)
    with pytest.raises(RunError, match=f"^cannot write {tmp_path}/index: File too large; raise"):
        item_export.write_faiss(tmp_path / "index", drawn(2, 0), drawn(rows, 1))
    assert not list(tmp_path.iterdir())


def test_without_faiss(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(UsageError, match="pip install faiss-cpu"):
        item_export.write_faiss(tmp_path / "index", drawn(2, 0), drawn(3, 1))
    assert not (tmp_path / "index").exists()


def test_the_check_of_an_index_holds_the_scores_of_a_few_users_at_a_time(monkeypatch):
    monkeypatch.setattr(item_export, "_SCORES", 1 << 18)
    draw = np.random.default_rng(0)
    users_NE, items_VE = draw.random((200, 4), np.float32), draw.random((50_000, 4), np.float32)
    tracemalloc.start()
    least_N = item_export._least_scores(users_NE, items_VE, 20)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_allclose(least_N, np.sort(users_NE @ items_VE.T)[:, -20], rtol=1e-5)
    assert most < 8 << 20  # of 40 MB
