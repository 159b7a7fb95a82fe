from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.benchmarks.harness import programs
from app.benchmarks.harness.options import AdamOptions
from app.benchmarks.harness.report import to_json, to_text
from app.benchmarks.sparse import adam_case
from app.errors import UsageError
from app.system import host_memory, processes

TIMES = {"table": 10.0, "dense": 2000.0, "keras": 4000.0}


@pytest.fixture
def ran(monkeypatch):
    """Stand-ins for the processes; gives the jobs that they were given. Much memory is free."""
    jobs = []

    def run(name, arguments, log, *files):
        job = json.loads(arguments[-1])
        jobs.append(job)
        values = {"step_ms": TIMES[job["side"]], "block_steps": 3, "table_bytes": 12}
        values |= {"device_peak_bytes": None}
        Path(job["result"]).write_text(json.dumps(values))
        return processes.Usage(0.0, 1.0, 10**9)

    monkeypatch.setattr(processes, "run", run)
    monkeypatch.setattr(programs, "import_usage", lambda module: processes.Usage(0.0, 1.0, 10**8))
    monkeypatch.setattr(host_memory, "free_bytes", lambda: 10**12)
    return jobs


def test_every_side_gets_the_same_job(ran):
    report = adam_case.run(AdamOptions(repeats=2, users=70, pairs=8))
    assert [job["side"] for job in ran] == [*TIMES, *reversed(TIMES)]
    assert {(job["rows"], *job["batch"], job["dim"]) for job in ran} == {(70, 8, 1, 64)}
    record = json.loads(json.dumps(to_json(report), allow_nan=False))
    assert record["case"] == "adam" and record["settings"]["users"] == 70
    assert record["sides"]["lexrow"]["median"]["steps_per_second"] == 100
    assert record["sides"]["dense"]["median"]["step_seconds"] == 2
    assert record["compared"]["dense"]["steps_per_second"]["ratio"] == 200
    assert "200.00 x" in to_text(report) and len(report.panels) == 3


def test_a_table_too_large_is_refused_before_any_work(ran, monkeypatch):
    monkeypatch.setattr(host_memory, "free_bytes", lambda: 6 * 10**9)
    with pytest.raises(UsageError, match=r"--users=5000000: needs 9.0 GB, 6.0 are free; give"):
        adam_case.run(AdamOptions())
    assert ran == []
    adam_case.run(AdamOptions(peers=""))  # 5.1 GB
    assert [job["side"] for job in ran] == ["table"]
