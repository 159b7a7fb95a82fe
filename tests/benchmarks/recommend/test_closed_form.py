"""EASE and cosines of items against their formulas, and the lists that they save."""

from __future__ import annotations

import numpy as np
import pytest

from app.benchmarks.recommend import closed_form
from app.errors import UsageError

USERS, ITEMS = 30, 12


@pytest.fixture
def job(tmp_path):
    pytest.importorskip("scipy")
    chosen = np.random.default_rng(0).random((USERS, ITEMS)) < 0.3
    chosen[np.arange(ITEMS), np.arange(ITEMS)] = True
    users, items = np.nonzero(chosen)
    np.savez(tmp_path / "pairs.npz", users=users, items=items, shape=(USERS, ITEMS))
    spec = {"pairs": str(tmp_path / "pairs.npz"), "folder": str(tmp_path), "k": 5}
    return chosen.astype(np.float64), spec | {"regularization": 3.0}


def ease(matrix):
    inverse = np.linalg.inv(matrix.T @ matrix + 3.0 * np.eye(ITEMS))
    return np.eye(ITEMS) - inverse / np.diag(inverse)


def cosine(matrix):
    unit = matrix / np.linalg.norm(matrix, axis=0)
    return unit.T @ unit - np.eye(ITEMS)


@pytest.mark.parametrize(("model", "formula"), [("ease", ease), ("cosine", cosine)])
def test_lists_are_those_of_the_formula(job, tmp_path, model, formula):
    matrix, spec = job
    values = closed_form.measure(spec | {"model": model})
    assert values["pairs"] == matrix.sum() and values["train_seconds"] > 0
    gram = (matrix.T @ matrix).astype(np.float32)
    weights = closed_form.ease(gram, 3.0) if model == "ease" else closed_form.cosine(gram)
    np.testing.assert_allclose(weights, formula(matrix), atol=1e-5)
    scores = np.where(matrix > 0, -np.inf, matrix @ formula(matrix))
    found = np.load(tmp_path / "ids.npy")
    assert found.shape == (USERS, 5)
    for user, ids in enumerate(found):
        best = np.sort(scores[user])[::-1][:5]
        np.testing.assert_allclose(scores[user, ids], best, atol=1e-5)


def test_what_does_not_fit_in_memory_is_refused(job, monkeypatch):
    monkeypatch.setattr(closed_form.host_memory, "free_bytes", lambda: 100)
    with pytest.raises(UsageError, match=r"^--peers: ease needs 0.0 GB for 12 items, and 0.0 GB"):
        closed_form.measure(job[1] | {"model": "ease"})
