from __future__ import annotations

import json

import numpy as np
import pytest

from app.benchmarks.harness import machine
from app.benchmarks.harness.options import RecommendOptions
from app.benchmarks.harness.report import to_json, to_text
from app.benchmarks.recommend import recommend_case, recommend_ratings
from app.errors import UsageError
from app.system import processes

# Users 0 to 7 have the items of their parity but for one, which is held out.
TRAIN = "".join(
    f"u{u} " + " ".join(f"i{i}" for i in range(u % 2, 12, 2) if i != u) + "\n" for u in range(8)
)
HELDOUT = "".join(f"u{u} i{u}\n" for u in range(8)) + "u1 nobody\n"


def stand_in(seconds, jobs, sign=1.0):
    """A side that trains in no time, and ranks items of a user's parity first, or last."""

    def run(job):
        jobs.append((seconds, job))
        for name, keys in (("users", job.data.split.users), ("items", job.data.split.items)):
            odd = np.array([int(key[1:]) % 2 for key in keys.tokens])
            vectors = np.stack([odd, 1 - odd], axis=1) * (sign if name == "users" else 1)
            np.save(job.folder / f"{name}.npy", vectors.astype(np.float32))
        return {
            "pairs": 100,
            "train_seconds": seconds,
            "total_seconds": seconds + 1,
            "peak_bytes": 3e8,
        }

    return run


@pytest.fixture
def files(tmp_path):
    (tmp_path / "train").write_text(TRAIN)
    (tmp_path / "heldout").write_text(HELDOUT)
    return {"corpus": str(tmp_path / "train"), "heldout": str(tmp_path / "heldout")}


@pytest.fixture
def jobs(monkeypatch):
    """Stand-ins for all sides; gives their seconds, and the jobs they were given."""
    given = []
    monkeypatch.setitem(recommend_case.SIDES, "lexrow", stand_in(2.0, given))
    monkeypatch.setitem(recommend_case.SIDES, "als", stand_in(4.0, given, sign=-1))
    monkeypatch.setitem(recommend_case.SIDES, "bpr", stand_in(8.0, given))
    monkeypatch.setattr(
        recommend_case.trainer, "sides", lambda value, known, case: ["lexrow", *value.split(",")]
    )
    bare = processes.Usage(0.0, 1.0, 100_000_000)
    monkeypatch.setattr(
        recommend_case.trainer,
        "measure_imports",
        lambda names, known: (machine.describe([]), dict.fromkeys(names, bare)),
    )
    return given


def test_every_side_is_scored_alike(files, jobs):
    report = recommend_case.run(RecommendOptions(**files, top="1,5", repeats=2))
    assert [seconds for seconds, _ in jobs] == [2.0, 4.0, 8.0, 8.0, 4.0, 2.0]
    assert [job.seed for _, job in jobs] == [1, 1, 1, 2, 2, 2]
    record = json.loads(json.dumps(to_json(report), allow_nan=False))
    sizes = {"users": 8, "items": 12, "pairs": 40, "heldout": 8, "heldout_left_out": 1}
    assert record["data"] == sizes
    ours, als, bpr = (side["median"] for side in record["sides"].values())
    assert ours["recall@1"] == bpr["recall@1"] == ours["ndcg@5"] == 1
    assert als["recall@5"] == 0 and ours["pairs_per_second"] == 50
    assert record["compared"]["als"]["recall@1"]["difference"] == 1
    assert record["compared"]["bpr"]["train_seconds"]["ratio"] == 0.25
    assert ours["peak_bytes_above_import"] == 2e8
    assert {panel.measure.key for panel in report.panels} >= {"recall@5", "train_seconds"}
    assert "+1.000" in to_text(report)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heldout": ""}, "--heldout=: nothing named"),
        ({"corpus": "no_such_file"}, "--corpus=no_such_file: no such file"),
        ({"top": "0"}, "--top=0: give at least 1"),
        ({"top": ""}, "--top=: give numbers such as 10,20"),
        ({"train_flags": "--seed=3"}, "--seed is for the benchmark to set"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(files, jobs, options, message):
    with pytest.raises(UsageError, match=message):
        recommend_case.run(RecommendOptions(**files | options))
    assert jobs == []


def job(files, tmp_path):
    data = recommend_ratings.read(files["corpus"], files["heldout"], tmp_path / "pairs.npz")
    return recommend_case.Job(
        tmp_path, data, dim=4, alpha=10.0, regularization=250.0, k=5, seed=1, train_flags=[]
    )


def check(values, given):
    assert 0 < values["train_seconds"] < values["total_seconds"] and values["pairs"] >= 40
    found = recommend_ratings.score(given.folder, given.data, [1, 5])
    assert 0 <= found["recall@1"] <= found["recall@5"] <= 1


@pytest.mark.slow
@pytest.mark.parametrize("model", ["als", "bpr"])
def test_implicit_trains_on_the_pairs(files, tmp_path, model):
    pytest.importorskip("implicit")
    given = job(files, tmp_path)
    check(recommend_case.SIDES[model](given), given)


@pytest.mark.slow
def test_the_trainer_trains_on_the_pairs(files, tmp_path):
    given = job(files, tmp_path)
    check(recommend_case._lexrow(given), given)
