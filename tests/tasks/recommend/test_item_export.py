"""Vectors of items in files, and an index of them."""

import json
import sys

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


def test_an_index_finds_the_best_items(tmp_path):
    users, items = drawn(20, 0), drawn(300, 1)
    item_export.write_faiss(tmp_path / "index", items)
    scores, found = faiss.read_index(str(tmp_path / "index")).search(users, 3)
    expected = -np.sort(-users @ items.T)[:, :3]
    np.testing.assert_allclose(scores, expected, rtol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(users @ items.T, found, 1), expected, rtol=1e-5)


@pytest.mark.parametrize("rows", [3, 3000])
def test_an_index_on_a_full_disk(tmp_path, limited, rows):
    limited(100)
    with pytest.raises(RunError, match=f"^cannot write {tmp_path}/index: File too large; raise"):
        item_export.write_faiss(tmp_path / "index", drawn(rows, 1))
    assert not list(tmp_path.iterdir())


def test_without_faiss(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(UsageError, match="pip install faiss-cpu"):
        item_export.write_faiss(tmp_path / "index", drawn(3, 1))
    assert not (tmp_path / "index").exists()
