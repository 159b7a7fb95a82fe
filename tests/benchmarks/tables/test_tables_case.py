from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.benchmarks.harness import machine
from app.benchmarks.harness.options import TablesOptions
from app.benchmarks.harness.report import to_json, to_text
from app.benchmarks.tables import tables_case
from app.benchmarks.tables.tables_case import OURS
from app.errors import UsageError
from app.system import host_memory, processes

# Of a stand-in for a process.
SPEEDS = {"device": 400.0, "host": 300.0, "naive": 100.0}
MOVED = {"host": 1e6, "disk": 1.5e6, "naive": 5e6}


@pytest.fixture
def ran(monkeypatch):
    """Stand-ins for the processes; gives the jobs that they were given. Much memory is free."""
    jobs = []

    def run(name, arguments, log, *files):
        job = json.loads(arguments[-1])
        jobs.append({**job, "program": arguments[1]})
        side = job["side"]
        values = {"steps_per_s": SPEEDS.get(side, 200.0), "rows_per_s": 5e5, "peak_bytes": 3e9}
        if side in MOVED:
            values |= {"staged_bytes": MOVED[side], "stage_stall": 0.05, "stage_hit_rate": 0.9}
        if side == "torch":
            values = {"left_out": "No module named 'torch'"}
        Path(job["result"]).write_text(json.dumps(values))
        return processes.Usage(0.0, 1.0, 10**9)

    monkeypatch.setattr(processes, "run", run)
    monkeypatch.setattr(host_memory, "free_bytes", lambda: 10**12)
    monkeypatch.setattr(machine, "_accelerators", list)
    return jobs


def cells(report):
    return [" ".join(line.split()) for line in to_text(report).splitlines()]


def test_every_side_of_every_optimizer_runs_once_a_repeat(ran):
    tables_case.run(TablesOptions(repeats=2))
    made = [(job["optimizer"], job["side"], job["hot"]) for job in ran]
    alone = [(side, None) for side in ("device", "sharded", "dynamic", "bfloat16", "naive")]
    staged = [("host", share) for share in (1, 10, 50, 100)] + [("disk", 10)]
    expected = {
        (name, *side) for name in ("lazy_adam", "rowwise_adagrad") for side in alone + staged
    }
    assert set(made) == expected | {("lazy_adam", "torch", None)}
    assert len(made) == 2 * len(set(made))
    assert {job["seed"] for job in ran} == {1, 2}
    programs = {(job["side"] == "torch", job["program"].rpartition("_")[2]) for job in ran}
    assert programs == {(True, "torch"), (False, "sides")}


def test_the_record_is_whole(ran):
    options = TablesOptions(optimizers="lazy_adam", hot_shares="10", rows=1000, dim=8)
    report = tables_case.run(options)
    record = json.loads(json.dumps(to_json(report), allow_nan=False))
    assert record["case"] == "tables" and record["settings"]["dim"] == 8
    titles = ["device", "host, 10 % hot", "disk, 10 % hot", *OURS[3:], "naive", "torch"]
    assert [side["title"] for side in record["sides"]] == titles
    ratios = record["ratios"]["lazy_adam"]
    assert ratios["host, 10 % hot"] == {"speed_of_device": 0.75, "moved_of_naive": 0.2}
    assert ratios["device"] == {"speed_of_device": 1.0, "moved_of_naive": None}
    lines = cells(report)
    assert "host, 10 % hot 300 500,000 5.0% 1.00 90.0% 3.00 0.75 0.20" in lines
    assert "torch n/a n/a n/a n/a n/a n/a n/a n/a" in lines
    assert lines[-1] == "left out: torch: No module named 'torch'"
    assert [panel.title for panel in report.panels] == [
        "lazy_adam: steps/s",
        "lazy_adam: peak, GB",
    ]
    assert list(report.panels[0].values) == titles[:-1] and report.panels[0].ours == 6
    assert report.title == "A table of 1,000 x 8, 4,096 ids a step by Zipf's law; one run a side"


def test_a_side_without_memory_is_left_out_and_said(ran, monkeypatch):
    monkeypatch.setattr(host_memory, "free_bytes", lambda: 2 * 10**9)
    options = TablesOptions(optimizers="lazy_adam", sides="device,disk", peers="")
    report = tables_case.run(options)
    assert [job["side"] for job in ran] == ["disk"]
    assert cells(report)[-1] == "left out: device: needs 2.5 GB, 2.0 are free"


def test_blocks_are_whole_chunks_of_whole_calls(ran):
    tables_case.run(TablesOptions(sides="host", peers="", hot_shares="0", steps=31, stage_steps=15))
    assert {(job["steps"], job["hot"]) for job in ran} == {(40, 0)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizers": "sgd"}, "--optimizers=sgd: sgd is no optimizer of tables; choose from "),
        ({"sides": "gpu"}, "gpu is no side of tables; choose from device, host, disk, "),
        ({"peers": "keras"}, "keras is no peer of tables; choose from naive, torch"),
        ({"hot_shares": "5,101"}, "--hot_shares=5,101: give at most 100"),
        ({"hot_shares": "half"}, "--hot_shares=half: 'half' is no whole number"),
        ({"sides": "", "peers": ""}, "nothing to measure"),
        ({"optimizers": "rowwise_adagrad", "sides": "", "peers": "torch"}, "nothing to measure"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(ran, options, message):
    with pytest.raises(UsageError, match=message):
        tables_case.run(TablesOptions(**options))
    assert ran == []


@pytest.mark.slow
def test_all_sides_side_by_side():
    options = TablesOptions(rows=2000, dim=8, ids=64, steps=10, stage_steps=10, peers="naive")
    report = tables_case.run(options)
    assert "left out" not in to_text(report) and len(report.panels) == 4
    for side in to_json(report)["sides"]:
        assert side["median"]["steps_per_s"] > 0, side["title"]
        assert (side["median"]["staged_bytes"] is not None) == (side["side"] in MOVED)
