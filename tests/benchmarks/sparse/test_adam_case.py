from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from app.benchmarks.harness import programs
from app.benchmarks.harness.options import AdamOptions
from app.benchmarks.harness.report import to_json, to_text
from app.benchmarks.sparse import adam_case, adam_sides
from app.errors import RunError, UsageError
from app.system import host_memory, processes

SPEEDS = {"lexrow": 0.01, "dense": 2.0, "keras": 4.0}


@pytest.fixture
def ran(monkeypatch):
    """Stand-ins for the processes; gives the jobs that they were given. Much memory is free."""
    jobs = []

    def run(name, arguments, log):
        job = json.loads(arguments[-1])
        jobs.append(job)
        values = {"step_seconds": SPEEDS[name], "block_steps": 3, "state_bytes": 12}
        Path(job["result"]).write_text(json.dumps(values))
        return processes.Usage(0.0, 1.0, 10**9)

    monkeypatch.setattr(processes, "run", run)
    monkeypatch.setattr(host_memory, "free_bytes", lambda: 10**12)
    return jobs


def test_every_side_gets_the_same_job(ran):
    report = adam_case.run(AdamOptions(repeats=2, users=70, pairs=8))
    assert [job["side"] for job in ran] == [*SPEEDS, *reversed(SPEEDS)]
    assert {(job["users"], job["pairs"], job["dim"]) for job in ran} == {(70, 8, 64)}
    record = json.loads(json.dumps(to_json(report), allow_nan=False))
    assert record["compared"]["dense"]["steps_per_second"]["ratio"] == 200
    assert "200.00 x" in to_text(report) and len(report.panels) == 3


def test_a_table_too_large_is_refused_before_any_work(ran, monkeypatch):
    monkeypatch.setattr(host_memory, "free_bytes", lambda: 5 * 10**9)
    with pytest.raises(UsageError, match=r"--users=5000000 needs 8.2 GB, and 5.0 are free"):
        adam_case.run(AdamOptions())
    adam_case.run(AdamOptions(peers=""))  # 4.9 GB
    assert [job["side"] for job in ran] == ["lexrow"]


@pytest.mark.filterwarnings("ignore:Converting sparse IndexedSlices")  # which Keras does
def test_lazy_and_dense_adam_do_the_same_where_every_row_is_touched():
    case = adam_sides.make_case(users=6, items=6, dim=3, pairs=6, seed=1)
    random = np.random.default_rng(1)
    every = np.stack([random.permutation(6) for _ in range(4)]).astype(np.int32)
    case = case._replace(users_SB=every, items_SB=every[:, ::-1].copy())
    found = []
    for make in adam_sides.SIDES.values():
        side = make(case)
        side.train(4)
        found.append(np.asarray(side.users(np.arange(6))))
        assert side.bytes() // 4 in (3 * 36, 3 * 36 + 2)  # rows and two slots; Keras' counters
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-3, atol=1e-6)


def test_a_side_writes_what_it_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(adam_sides, "_BLOCK_SECONDS", 0.0)
    job = {"side": "lexrow", "users": 50, "items": 9, "dim": 2, "pairs": 8, "seed": 1}
    adam_sides.main(job | {"result": str(tmp_path / "result")})
    found = json.loads((tmp_path / "result").read_text())
    assert found["step_seconds"] > 0 and found["state_bytes"] == 3 * 59 * 2 * 4


def test_a_side_that_does_not_train_has_no_speed(tmp_path, monkeypatch):
    def idle(case):
        return adam_sides.Side(lambda steps: None, lambda ids: adam_sides.tf.ones((8, 2)), int)

    monkeypatch.setitem(adam_sides.SIDES, "lexrow", idle)
    job = {"side": "lexrow", "users": 50, "items": 9, "dim": 2, "pairs": 8, "seed": 1}
    with pytest.raises(RunError, match="lexrow did not train its rows"):
        adam_sides.main(job | {"result": str(tmp_path / "result")})
