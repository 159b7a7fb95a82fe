from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.benchmarks.harness import machine, programs
from app.benchmarks.harness.options import SparseOptions
from app.benchmarks.harness.report import to_json, to_text
from app.benchmarks.sparse import sparse_case
from app.errors import RunError, UsageError
from app.system import host_memory, processes

# Of a stand-in for a process: ms a step.
TIMES = {"table": 4.0, "fit": 5.0, "hand": 4.0, "keras": 100.0, "keras_jit": 50.0}


@pytest.fixture
def ran(monkeypatch):
    """Stand-ins for the processes; gives the jobs that they were given. Much memory is free."""
    jobs = []

    def run(name, arguments, log, *files):
        job = json.loads(arguments[-1])
        jobs.append(job)
        rows, dim = job["rows"], job["dim"]
        values = {"step_ms": TIMES[job["side"]] + len(jobs) / 1000 + rows / 1e6}
        values |= {"table_bytes": 4 * rows * dim, "device_peak_bytes": None}
        Path(job["result"]).write_text(json.dumps(values))
        return processes.Usage(0.0, 1.0, 4 * rows * dim + 900_000_000)

    monkeypatch.setattr(processes, "run", run)
    bare = processes.Usage(0.0, 1.0, 600_000_000)
    monkeypatch.setattr(programs, "import_usage", lambda module: bare)
    monkeypatch.setattr(host_memory, "free_bytes", lambda: 10**12)
    monkeypatch.setattr(machine, "_accelerators", list)
    return jobs


def cells(report):
    return [" ".join(line.split()) for line in to_text(report).splitlines()]


def test_every_side_of_every_optimizer_runs_once_a_repeat(ran):
    sparse_case.run(SparseOptions(repeats=2))
    made = [(job["optimizer"], job["side"], job["rows"], job["dim"]) for job in ran]
    compared = {
        (name, side, 793_471, 512)
        for name, own in sparse_case.HELD.items()
        for side in own
        if side != "dense"  # not by default
    }
    growing = {("lazy_adam", "table", 10**5 * times, 128) for times in (1, 10, 80)}
    assert set(made) == compared | growing and len(made) == 2 * len(set(made))
    assert made[: len(made) // 2] == made[: len(made) // 2 - 1 : -1]  # turned round
    assert ("ftrl", "fit") not in {job[:2] for job in made}
    assert ("rowwise_adagrad", "keras") not in {job[:2] for job in made}
    assert {job["seed"] for job in ran} == {1, 2}


def test_the_record_is_whole(ran):
    options = SparseOptions(optimizers="sgd", rows=1000, dim=8, vocabularies="3000,1000")
    report = sparse_case.run(options)
    record = json.loads(json.dumps(to_json(report), allow_nan=False))
    assert record["case"] == "sparse" and record["settings"]["dim"] == 8
    assert record["machine"]["versions"].keys() == {"python", "tensorflow", "keras", "numpy"}
    assert [result["side"] for result in record["compared"]] == list(TIMES)
    first = record["compared"][0]
    assert first["median"]["table_bytes"] == 32_000 and first["left_out"] is None
    assert first["median"]["above_table_bytes"] == 900_000_000
    assert first["median"]["above_import_bytes"] == 300_032_000
    assert record["ratios"]["sgd"]["keras / fit"] == pytest.approx(20, rel=0.01)
    assert record["ratios"]["sgd"]["keras_jit / fit"] == pytest.approx(10, rel=0.01)
    assert record["ratios"]["sgd"]["table / hand"] == pytest.approx(1, rel=0.01)
    assert [result["rows"] for result in record["growing"]] == [1000, 3000]
    assert record["growth"] == pytest.approx(1, rel=0.01)
    assert report.title == "One step of a table, 1,000 x 8, 128 x 20 ids; one run a side"
    assert len(report.panels) == 2


def test_a_side_without_memory_is_left_out_and_said(ran, monkeypatch):
    monkeypatch.setattr(host_memory, "free_bytes", lambda: 11 * 10**9)
    report = sparse_case.run(SparseOptions(optimizers="lazy_adam", vocabularies="8000000"))
    assert [job["side"] for job in ran] == ["table", "fit", "hand"]
    lines = cells(report)
    assert "Keras n/a n/a n/a n/a n/a" in lines
    (keras,) = [line for line in lines if line.startswith("left out: Keras: needs 1")]
    assert keras.endswith(" GB, 11.0 are free")
    assert lines[-1].startswith("left out: 8,000,000 rows: needs 13.")
    assert "keras / fit" not in to_json(report)["ratios"]["lazy_adam"]
    assert to_json(report)["growth"] is None and len(report.panels) == 1
    assert to_json(report)["compared"][3]["left_out"]


def test_on_a_gpu_the_memory_is_that_of_the_gpu(ran, monkeypatch):
    monkeypatch.setattr(machine, "_accelerators", lambda: ["a GPU"])
    monkeypatch.setattr(host_memory, "free_bytes", lambda: 0)
    stand_in = processes.run

    def run(name, arguments, log, *files):
        usage = stand_in(name, arguments, log)
        result = Path(json.loads(arguments[-1])["result"])
        values = json.loads(result.read_text()) | {"device_peak_bytes": 50_000}
        result.write_text(json.dumps(values))
        return usage

    monkeypatch.setattr(processes, "run", run)
    options = SparseOptions(optimizers="sgd", peers="", rows=1000, dim=8, vocabularies="")
    median = to_json(sparse_case.run(options))["compared"][0]["median"]
    assert median["above_table_bytes"] == 50_000 - 32_000


def test_a_side_for_which_the_device_is_too_small_is_left_out(ran, monkeypatch):
    def run(name, arguments, log, *files):
        result = Path(json.loads(arguments[-1])["result"])
        result.write_text(json.dumps({"left_out": "the memory of the device does not suffice"}))

    monkeypatch.setattr(processes, "run", run)
    report = sparse_case.run(SparseOptions(optimizers="sgd", peers="", vocabularies=""))
    assert cells(report)[-1].endswith(
        "left out: Lexrow, in fit: the memory of the device does not suffice"
    )
    assert report.panels == []


def test_ours_alone_and_growth_alone(ran):
    sparse_case.run(SparseOptions(optimizers="sgd", peers="", vocabularies=""))
    assert [job["side"] for job in ran] == ["table", "fit"]
    ran.clear()
    report = sparse_case.run(SparseOptions(optimizers="", vocabularies="1000,100000"))
    assert [(job["rows"], job["dim"]) for job in ran] == [(1000, 128), (100_000, 128)]
    assert cells(report)[-1].startswith("largest : smallest 1.0")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizers": "adam"}, "--optimizers=adam: adam is no optimizer; choose from sgd, "),
        (
            {"peers": "gensim"},
            "gensim is no peer of sparse; choose from hand, keras, keras_jit, dense",
        ),
        ({"vocabularies": "1e5"}, "--vocabularies=1e5: '1e5' is no whole number"),
        ({"vocabularies": "5,0"}, "--vocabularies=5,0: give at least 1"),
        ({"optimizers": "", "vocabularies": ""}, "are empty; give one of them"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(ran, options, message):
    with pytest.raises(UsageError, match=message):
        sparse_case.run(SparseOptions(**options))
    assert ran == []


@pytest.mark.slow
def test_a_side_is_a_process_of_its_own():
    bare = processes.Usage(0.0, 1.0, 10)
    job = sparse_case.Job("sgd", "hand", 1000, 8, 3)
    values = sparse_case.measure(job, 1, bare)
    assert values["step_ms"] > 0 and values["table_bytes"] == 32_000
    assert values["above_table_bytes"] == values["peak_bytes"] - 32_000
    with pytest.raises(RunError, match="sgd, by hand, 1,000 x -8 ended with exit code 1: "):
        sparse_case.measure(job._replace(dim=-8), 1, bare)


@pytest.mark.slow
def test_all_sides_side_by_side():
    report = sparse_case.run(SparseOptions(rows=1000, dim=8, steps=3, vocabularies="1000,2000"))
    ratios = to_json(report)["ratios"]
    assert ratios.keys() == sparse_case.HELD.keys()
    assert all("table / hand" in own for own in ratios.values())
    assert sum("keras_jit / fit" in own for own in ratios.values()) == 5
    assert "left out" not in to_text(report) and len(report.panels) == 8
