from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.benchmarks.harness import machine
from app.benchmarks.harness.keras_options import KerasOptions
from app.benchmarks.harness.report import to_json, to_text
from app.benchmarks.keras import keras_case
from app.benchmarks.keras.keras_job import OURS, PEERS
from app.errors import UsageError
from app.system import host_memory, processes

# Of a stand-in for a process: ms a step.
TIMES = {"device": 5.0, "host": 10.0, "keras": 400.0, "keras_jit": 200.0}


@pytest.fixture
def ran(monkeypatch):
    """Stand-ins for the processes; gives the jobs that they were given. Much memory is free."""
    jobs = []

    def run(name, arguments, log, *files):
        job = json.loads(arguments[-1])
        jobs.append(job)
        assert Path(job["folder"]).is_dir()
        values = {"step_ms": TIMES.get(job["side"], 20.0), "state_bytes": 12 * 10**8}
        values |= {"device_peak_bytes": None, "own_peak_bytes": 16 * 10**8}
        Path(job["result"]).write_text(json.dumps(values))
        return processes.Usage(0.0, 1.0, 2 * 10**9)

    monkeypatch.setattr(processes, "run", run)
    monkeypatch.setattr(host_memory, "free_bytes", lambda: 10**12)
    monkeypatch.setattr(machine, "_accelerators", list)
    monkeypatch.setattr(keras_case, "_has_keras_rs", lambda: False)
    return jobs


def cells(report):
    return [" ".join(line.split()) for line in to_text(report).splitlines()]


def test_every_side_of_every_model_runs_once_a_repeat(ran):
    keras_case.run(KerasOptions(repeats=2))
    made = [(job["model"], job["side"]) for job in ran]
    sides = [*OURS, *(peer for peer in PEERS if peer != "keras_rs")]
    assert made[: len(made) // 2] == [(m, side) for m in ("two_tower", "dlrm") for side in sides]
    assert made[: len(made) // 2] == made[: len(made) // 2 - 1 : -1]  # in reverse
    assert {job["seed"] for job in ran} == {1, 2}


def test_the_tables_are_those_of_the_flags(ran):
    options = KerasOptions(sides="device", peers="", users=70, items=30, dim=8)
    keras_case.run(options)
    assert ran[0]["tables"] == [["users", 70, 8, 1], ["items", 30, 8, 1]]
    rows = [10_000, 30_000, 100_000, 300_000, 500_000, 1_000_000, 2_000_000, 5_000_000]
    assert [table[1] for table in ran[1]["tables"]] == rows
    assert [table[2] for table in ran[1]["tables"]] == [32] * 5 + [16] * 3
    assert [table[3] for table in ran[1]["tables"]] == [1] * 4 + [20] + [1] * 3
    ran.clear()
    keras_case.run(KerasOptions(models="dlrm", sides="host", peers="", table_rows="9,5,7"))
    sizes = [["feature_0", 5, 32, 1], ["feature_1", 7, 32, 20], ["feature_2", 9, 32, 1]]
    assert ran[0]["tables"] == sizes


def test_the_record_is_whole(ran):
    options = KerasOptions(models="two_tower", sides="device,host,host_cache", hot_share=5)
    report = keras_case.run(options)
    record = json.loads(json.dumps(to_json(report), allow_nan=False))
    assert record["case"] == "keras" and record["settings"]["hot_share"] == 5
    titles = ["device", "host", "host, 5 % hot", "Keras", "Keras, jit", "keras-rs"]
    assert [side["title"] for side in record["sides"]] == titles
    assert record["sides"][0]["median"]["steps_per_s"] == 200
    assert record["sides"][0]["median"]["above_bytes"] == 8 * 10**8
    ratios = record["ratios"]["two_tower"]
    assert ratios["device"] == {"speed_of_keras": 80, "speed_of_keras_jit": 40}
    assert ratios["keras_rs"] == {"speed_of_keras": None, "speed_of_keras_jit": None}
    lines = cells(report)
    assert "device 200.0 5.0 2.00 1.60 1.20 0.80 80.0 40.0" in lines
    assert lines[-1] == "left out: keras-rs: keras-rs is not installed; pip install keras-rs"
    assert [panel.title for panel in report.panels] == [
        "Two towers: steps/s",
        "Two towers: peak, GB",
    ]
    assert list(report.panels[0].values) == titles[:-1] and report.panels[0].ours == 3


def test_a_side_without_memory_is_left_out_and_said(ran, monkeypatch):
    monkeypatch.setattr(host_memory, "free_bytes", lambda: 2 * 10**9)
    options = KerasOptions(models="two_tower", sides="device,file", peers="keras_jit")
    report = keras_case.run(options)
    assert [job["side"] for job in ran] == ["file"]
    assert cells(report)[-2:] == [
        "left out: device: needs 3.2 GB, 2.0 are free",
        "left out: Keras, jit: needs 5.9 GB, 2.0 are free",
    ]
    assert to_json(report)["ratios"]["two_tower"]["file"]["speed_of_keras_jit"] is None


def test_on_a_gpu_its_memory_has_a_column(ran, monkeypatch):
    stand_in = processes.run

    def run(name, arguments, log, *files):
        usage = stand_in(name, arguments, log)
        result = Path(json.loads(arguments[-1])["result"])
        result.write_text(json.dumps(json.loads(result.read_text()) | {"device_peak_bytes": 5e9}))
        return usage

    monkeypatch.setattr(processes, "run", run)
    monkeypatch.setattr(machine, "_accelerators", lambda: ["a GPU"])
    monkeypatch.setattr(host_memory, "free_bytes", lambda: 0)
    report = keras_case.run(KerasOptions(models="two_tower", sides="device", peers=""))
    assert "device 200.0 5.0 2.00 1.60 1.20 5.00" in cells(report)


def test_without_room_on_the_device_a_side_is_left_out(ran, monkeypatch):
    def run(name, arguments, log, *files):
        result = Path(json.loads(arguments[-1])["result"])
        result.write_text(json.dumps({"left_out": "the memory of the device does not suffice"}))

    monkeypatch.setattr(processes, "run", run)
    report = keras_case.run(KerasOptions(models="dlrm", sides="device", peers=""))
    assert cells(report)[-1] == "left out: device: the memory of the device does not suffice"
    assert report.panels == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"models": "bert"}, "--models=bert: bert is no model of keras; choose from two_tower, "),
        ({"sides": "disk"}, "--sides=disk: disk is no side of keras; choose from device, "),
        ({"peers": "torch"}, "torch is no peer of keras; choose from keras, keras_jit, keras_rs"),
        ({"sides": "", "peers": ""}, "nothing to measure"),
        ({"models": ""}, "nothing to measure"),
        ({"batch": 1}, "--batch=1: give at least 2"),
        ({"hot_share": 0}, "--hot_share=0: give at least 1"),
        ({"table_rows": "5,0"}, "--table_rows=5,0: give at least 1"),
        ({"table_rows": ""}, "--table_rows=: give numbers such as 10000,30000"),
    ],
)
def test_bad_options_are_refused_before_any_work(ran, options, message):
    with pytest.raises(UsageError, match=message):
        keras_case.run(KerasOptions(**options))
    assert ran == []


@pytest.mark.slow
def test_all_sides_side_by_side():
    options = KerasOptions(
        peers="keras,keras_jit",
        users=300,
        items=200,
        dim=4,
        table_rows="50,60,70",
        batch=8,
        steps=3,
    )
    report = keras_case.run(options)
    assert "left out" not in to_text(report) and len(report.panels) == 4
    for side in to_json(report)["sides"]:
        assert side["median"]["steps_per_s"] > 0, side["title"]
