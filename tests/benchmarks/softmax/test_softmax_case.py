from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.benchmarks.harness import machine
from app.benchmarks.harness.options import SoftmaxOptions
from app.benchmarks.harness.report import to_json, to_text
from app.benchmarks.softmax import softmax_case, softmax_sides
from app.build import outputs
from app.config import Config, ModelConfig, checks
from app.errors import UsageError
from app.system import host_memory, processes

SMALL = {"losses": "softmax,class_softmax", "vocabularies": "2000,1000", "targets": "40"}


@pytest.fixture
def ran(monkeypatch):
    """Stand-ins for the processes; gives the jobs that they were given. Much memory is free."""
    jobs = []

    def run(name, arguments, log, *files):
        job = json.loads(arguments[-1])
        jobs.append(job)
        table = 4 * job["words"] * job["dim"]
        values = {"step_ms": 8.0 if job["side"] == "ours" else 40.0, "rows": job["words"]}
        values |= {"read_bytes": table, "written_bytes": table, "table_bytes": table}
        Path(job["result"]).write_text(json.dumps(values | {"device_peak_bytes": None}))
        return processes.Usage(0.0, 1.0, table + 900_000_000)

    monkeypatch.setattr(processes, "run", run)
    monkeypatch.setattr(host_memory, "free_bytes", lambda: 10**12)
    monkeypatch.setattr(machine, "_accelerators", list)
    return jobs


def cells(report):
    return [" ".join(line.split()) for line in to_text(report).splitlines()]


def test_every_side_runs_once_a_repeat_with_its_settings(ran):
    softmax_case.run(SoftmaxOptions(**SMALL, repeats=2, dim=7, compute_dtype="bfloat16"))
    made = [(job["side"], job["settings"].get("loss"), job["words"]) for job in ran]
    sides = [("ours", "softmax"), ("ours", "class_softmax"), ("dense", None), ("copies", None)]
    assert made[:8] == [(*side, words) for words in (1000, 2000) for side in sides]
    assert made[8:] == made[7::-1]  # turned round
    assert {(job["targets"], job["dim"], job["compute_dtype"]) for job in ran} == {
        (40, 7, "bfloat16")
    }
    assert {job["seed"] for job in ran} == {1, 2}


def test_the_losses_are_those_of_training():
    for name, given in softmax_case.LOSSES.items():
        model = ModelConfig(**given)
        checks.check(Config(model=model), needs_workdir=False)
        assert model.loss in outputs.LOSSES, name
    assert {"ours", *softmax_case.PEERS} == softmax_sides.SIDES.keys()


def test_record_table_and_panels(ran):
    report = softmax_case.run(SoftmaxOptions(**SMALL, dim=5))
    record = json.loads(json.dumps(to_json(report), allow_nan=False))
    assert record["case"] == "softmax" and "json" not in record["settings"]
    assert len(record["results"]) == 8
    first = record["results"][0]
    assert (first["side"], first["words"], first["targets"]) == ("softmax", 1000, 40)
    assert first["left_out"] is None and first["median"]["above_table_bytes"] == 900_000_000
    lines = cells(report)
    assert "softmax, 1,000 words 8.0 1,000 0.0 0.0 0.90 0.90" in lines
    assert [line.partition(" x")[0] for line in lines[-4:]] == [
        f"{peer}, {words} words 5.00"
        for peer in ("dense : softmax", "copies : class_softmax")
        for words in ("1,000", "2,000")
    ]
    time, memory = report.panels
    assert time.title == "40 targets: ms a step" and time.values["dense"] == {1000: 40, 2000: 40}
    assert memory.values["softmax"][2000] == pytest.approx(0.90004)
    assert memory.peers == {"dense", "copies"}


def test_what_does_not_fit_or_takes_too_long_is_left_out_and_said(ran, monkeypatch):
    monkeypatch.setattr(host_memory, "free_bytes", lambda: 20 * 10**9)
    sizes = {"vocabularies": "1000000,10000000", "targets": "400,40000"}
    report = softmax_case.run(SoftmaxOptions(losses="softmax,class_softmax", **sizes))
    made = {
        (job["settings"].get("loss") or job["side"], job["words"], job["targets"]) for job in ran
    }
    fit = {
        ("class_softmax", words, targets) for words in (10**6, 10**7) for targets in (400, 40_000)
    }
    assert made == fit | {("softmax", 10**6, 400), ("softmax", 10**7, 400)} | {
        ("dense", 10**6, 400),
        ("copies", 10**6, 400),
    }
    lines = cells(report)
    assert "dense, 10,000,000 words n/a n/a n/a n/a n/a n/a" in lines
    assert "left out: softmax, 1,000,000 words: a step would take 96 Tflop" in lines
    assert softmax_case._reason_against(
        softmax_case.Job("adaptive_softmax", 10**7, 40_000, 300, "", 1), False
    )
    needs = [line for line in lines if line.startswith("left out: copies, 1,000,000 words: ")]
    assert needs[-1].endswith("GB, 20.0 are free") and "needs 17" in needs[-1]
    assert "copies" not in report.panels[2].values
    assert to_json(report)["results"][6]["left_out"].startswith("needs")


def test_on_a_gpu_the_memory_is_that_of_the_gpu(ran, monkeypatch):
    monkeypatch.setattr(machine, "_accelerators", lambda: ["a GPU"])
    monkeypatch.setattr(host_memory, "free_bytes", lambda: 0)
    stand_in = processes.run

    def run(name, arguments, log, *files):
        usage = stand_in(name, arguments, log)
        result = Path(json.loads(arguments[-1])["result"])
        values = json.loads(result.read_text()) | {"device_peak_bytes": 5_000_000}
        result.write_text(json.dumps(values))
        return usage

    monkeypatch.setattr(processes, "run", run)
    median = to_json(softmax_case.run(SoftmaxOptions(**SMALL)))["results"][0]["median"]
    assert median["peak_bytes"] == 5_000_000
    assert median["above_table_bytes"] == 5_000_000 - 4 * 1000 * 300


def test_a_side_for_which_the_device_is_too_small_is_left_out(ran, monkeypatch):
    def run(name, arguments, log, *files):
        result = Path(json.loads(arguments[-1])["result"])
        result.write_text(json.dumps({"left_out": "the memory of the device does not suffice"}))

    monkeypatch.setattr(processes, "run", run)
    report = softmax_case.run(SoftmaxOptions(**SMALL))
    assert cells(report)[-1].endswith("words: the memory of the device does not suffice")
    assert report.panels == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"losses": "glove"}, "--losses=glove: glove is no loss of softmax; choose from softmax, "),
        ({"peers": "keras"}, "keras is no peer of softmax; choose from dense, copies"),
        ({"losses": "", "peers": ""}, "--losses= and --peers= are empty; give one of them"),
        ({"vocabularies": "1e5"}, "--vocabularies=1e5: '1e5' is no whole number"),
        ({"vocabularies": "5,1"}, "--vocabularies=5,1: give at least 2"),
        ({"targets": "400,0"}, "--targets=400,0: give at least 1"),
        ({"targets": ""}, "--targets=: give numbers such as 400,40000"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(ran, options, message):
    with pytest.raises(UsageError, match=message):
        softmax_case.run(SoftmaxOptions(**options))
    assert ran == []


@pytest.mark.slow
def test_a_side_is_a_process_of_its_own():
    job = softmax_case.Job("class_softmax", 50, 6, 4, "float32", 2)
    values = softmax_case._measure(job, 1)
    assert values["step_ms"] > 0 and len(values["steps_ms"]) == 2
    assert values["above_table_bytes"] == values["peak_bytes"] - values["table_bytes"]


@pytest.mark.slow
def test_all_sides_side_by_side():
    options = SoftmaxOptions(vocabularies="50,2", targets="6", dim=4, steps=2)
    report = softmax_case.run(options)
    assert "left out" not in to_text(report)
    assert all(result["median"]["step_ms"] > 0 for result in to_json(report)["results"])
