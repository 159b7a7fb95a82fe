from __future__ import annotations

import json
import shlex
import signal
from pathlib import Path

import numpy as np
import pytest

from app.benchmarks.harness import machine
from app.benchmarks.harness.options import ScalingOptions
from app.benchmarks.harness.report import to_json, to_text
from app.benchmarks.scaling import scaling_case, scaling_meter
from app.benchmarks.scaling.scaling_meter import Mark
from app.errors import RunError, UsageError
from app.system import host_memory, processes
from app.tasks import trained_vectors
from app.types import WordVectors
from tests.integration.commands import SMALL, write_corpus

PAIRED = ["tiger", "cat", "old", "new", "love", "sex", "smart", "stupid"]
SECONDS_AT_MOST = 600  # after which processes hang, on the slowest machine
# Of stand-ins for runs: seconds of the training. One process makes 2,000 words in 4 s.
SECONDS = {"none": 4.0, "multi_worker 1": 5.0, "multi_worker 2": 8.0}
SECONDS |= {
    "multi_worker 2 sync 32": 4.0,
    "parameter_server 1": 10.0,
    "parameter_server 2": 16.0,
    "mirrored": 3.0,
}
FLAGS = [f for f in SMALL if not f.startswith(("--dim", "--epochs", "--min_c", "--batch", "--log"))]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "text"
    path.write_text("some words of text\n" * 500)
    return str(path)


def values_of(arguments):
    pairs = (argument[2:].partition("=") for argument in arguments if argument.startswith("--"))
    return {name: value for name, _, value in pairs}


def side_of(arguments):
    given = values_of(arguments)
    if given.get("strategy") == "mirrored":
        return "mirrored"
    if arguments[1] == "app.train":
        return "none"
    kind = "parameter_server" if "ps" in given else "multi_worker"
    apart = f" sync {given['sync_steps']}" if "sync_steps" in given else ""
    return f"{kind} {given['workers']}{apart}"


@pytest.fixture
def ran(monkeypatch):
    """Stand-ins for the processes; gives what they were given, by turns."""
    given = []

    def train(arguments):
        flags = values_of(arguments)
        workdir, seconds = Path(flags["workdir"]), SECONDS[side_of(arguments)]
        workdir.mkdir()
        (workdir / "vocab.tsv").write_text("a\t3\n" * 50)
        rows = [
            {"epoch": 0.4, "words": 400, "step": 2, "train_seconds": seconds / 2},
            {"epoch": int(flags["epochs"]), "words": 2000, "step": 10, "train_seconds": seconds},
        ]
        more = {"exchanged_bytes": 900.0} if arguments[1] == "app.cluster" else {}
        more |= {"calls_again": 3} if "ps" in flags else {}
        lines = [json.dumps({**row, "input_wait": 0.5, **more}) for row in rows]
        (workdir / "metrics.jsonl").write_text("\n".join(lines) + "\n")

    def measure(name, job):
        if name == "exchange":
            assert (Path(job["workdir"]) / "vocab.tsv").exists()
            of_size = {"exchanged_bytes": 5000 + job["rows"] // 1000, "step_ms": 2.0}
            return of_size | {"table_bytes": 10 * job["rows"], "zipf_bytes": 6000.0}
        rows = [(n, 100.0 / n if n < 8 else None) for n in (1, *job["workers"])]
        left_out = [(n, "8 does not divide it") for n, share in rows if share is None]
        costs = {"step_seconds": 0.01, "gradient_seconds": 0.006}
        return costs | {"rows": rows, "left_out": left_out}

    def run(name, arguments, log, *files):
        given.append((name, arguments))
        Path(log).write_text("")
        if name in ("app.train", "app.cluster"):
            train(arguments)
        else:
            job = json.loads(arguments[-1])
            Path(job["result"]).write_text(json.dumps(measure(name, job)))
        return processes.Usage(0.0, 1.0, 10**9)

    random = np.random.default_rng(0)
    made = WordVectors(PAIRED, random.normal(size=(len(PAIRED), 4)).astype(np.float32))
    monkeypatch.setattr(processes, "run", run)
    monkeypatch.setattr(trained_vectors, "load", lambda workdir: made)
    monkeypatch.setattr(machine, "_accelerators", list)
    monkeypatch.setattr(host_memory, "free_bytes", lambda: 10**12)
    return given


def trained(ran):
    return [arguments for name, arguments in ran if name in ("app.train", "app.cluster")]


@pytest.mark.slow
def test_every_side_trains_alike_and_by_turns(corpus, ran):
    given = {"sync_steps": "", "train_flags": "--negatives=3"}
    scaling_case.run(ScalingOptions(corpus=corpus, repeats=2, dim=7, **given))
    order = ["none", "multi_worker 1", "multi_worker 2", "parameter_server 1", "parameter_server 2"]
    assert [side_of(arguments) for arguments in trained(ran)] == [*order, *reversed(order)]
    for place, arguments in enumerate(trained(ran)):
        flags = values_of(arguments)
        assert (flags["corpus"], flags["dim"], flags["batch_tokens"]) == (corpus, "7", "4096")
        assert flags["seed"] == str(1 + place // 5) and "--negatives=3" in arguments
        if arguments[1] == "app.cluster":
            before, after = arguments[: arguments.index("--")], arguments[arguments.index("--") :]
            assert "--flagfile=configs/words.cfg" in after and "--flagfile" not in str(before)
    assert len({values_of(arguments)["workdir"] for arguments in trained(ran)}) == 10
    assert [values_of(arguments).get("ps") for arguments in trained(ran)[3:5]] == ["2", "2"]


@pytest.mark.slow
def test_replicas_on_gpus_are_a_side_where_there_are_several(corpus, ran, monkeypatch):
    options = ScalingOptions(corpus=corpus, workers="", vocabularies="", modelled="")
    scaling_case.run(options)
    monkeypatch.setattr(machine, "_accelerators", lambda: ["one", "another"])
    scaling_case.run(options)
    assert [side_of(arguments) for arguments in trained(ran)] == ["none", "none", "mirrored"]


@pytest.mark.slow
def test_the_record_is_whole(corpus, ran):
    sizes = "20,1000,100000"
    given = {"vocabularies": sizes, "modelled": "2,4,8", "sync_steps": ""}
    options = ScalingOptions(corpus=corpus, epochs=4, **given)
    report = scaling_case.run(options)
    record = json.loads(json.dumps(to_json(report), allow_nan=False))
    one, two = record["sides"]["none"]["median"], record["sides"]["multi_worker 2"]["median"]
    assert one["words_per_second"] == 500 and one["later_words_per_second"] == 800
    assert one["exchanged_bytes"] is None and one["calls_again"] is None
    # A step has 200 words; each of two sends 900 bytes to the other.
    assert two["exchanged_bytes"] == 900 and two["bytes_per_word"] == 2 * 900 / 200
    served = record["sides"]["parameter_server 2"]["median"]
    assert served["bytes_per_word"] == 900 / 200 and served["calls_again"] == 3
    assert record["compared"]["multi_worker 2"]["words_per_second"]["ratio"] == 2
    assert [one["rows"] for one in record["exchange"]] == [20, 1000, 100000]
    assert record["exchange"][0]["left_out"] == "the text has 50 words"
    assert record["model"]["is_measured"] is False
    assert [r["workers"] for r in record["model"]["reckoned"]] == [2, 2, 4, 4, 8, 2, 4, 8]
    for text in (
        f"all processes of a side share {machine.cores()} cores",
        "of one process",
        "0.50",
        "largest : smallest",
        "left out: 20 rows: the text has 50 words",
        "a model, not a measurement",
        "multi_worker 8, 32,768 tokens a step",
        "left out: multi_worker 8, 4,096 tokens a step: 8 does not divide it",
    ):
        assert text in to_text(report)
    assert to_text(report).count("left out: multi_worker") == 1
    assert report.title.startswith("500 words, epochs 4, dim 100, 4,096 tokens a step; all")
    assert len(report.panels) == 4 - 2 + 1 + 3  # no scores of analogies, no processor time


@pytest.mark.slow
def test_workers_that_exchange_changes_have_a_batch_each(corpus, ran):
    options = ScalingOptions(corpus=corpus, sync_steps="32", servers=0, vocabularies="")
    report = scaling_case.run(options)
    sides = [side_of(arguments) for arguments in trained(ran)]
    assert sides == ["none", "multi_worker 1", "multi_worker 2", "multi_worker 2 sync 32"]
    assert values_of(trained(ran)[-1])["batch_tokens"] == str(2 * 4096)
    apart = to_json(report)["sides"]["multi_worker 2 sync 32"]["median"]
    assert apart["bytes_per_word"] == 2 * 900 / 200
    reckoned = to_json(report)["model"]["reckoned"]
    (two,) = [r for r in reckoned if (r["strategy"], r["workers"]) == ("multi_worker sync 32", 2)]
    # 800 words/s of both in the later part; each has half of 200 words in a step.
    assert two["seconds"] == 100 / 800 and two["bytes"] == 9 * 100


def test_a_table_that_does_not_fit_is_left_out(corpus, ran, monkeypatch):
    monkeypatch.setattr(host_memory, "free_bytes", lambda: 10**9 * 3)
    options = ScalingOptions(corpus=corpus, workers="", modelled="", vocabularies="1000,10000000")
    report = scaling_case.run(options)
    assert "10,000,000 rows: needs 4.2 GB, 3.0 are free; give fewer --columns" in to_text(report)
    assert [name for name, _ in ran] == ["app.train", "exchange"]


def test_the_time_of_a_message_may_be_set(corpus, ran):
    options = ScalingOptions(corpus=corpus, workers="", vocabularies="", message_us=50.0)
    report = scaling_case.run(options)
    assert to_json(report)["model"]["message_seconds"] == pytest.approx(50e-6)
    assert [name for name, _ in ran] == ["app.train", "model"]


def test_a_side_that_stops_early_has_no_speed(corpus, ran, monkeypatch):
    read = scaling_meter.read_metrics
    monkeypatch.setattr(scaling_meter, "read_metrics", lambda *given: read(*given) | {"epoch": 3.5})
    with pytest.raises(
        RunError, match="none-1 ended at epoch 3.5 of 5, so its speed means nothing"
    ):
        scaling_case.run(ScalingOptions(corpus=corpus))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": "1,0"}, "--workers=1,0: give at least 1"),
        ({"modelled": "1"}, "--modelled=1: give at least 2"),
        ({"vocabularies": "x"}, "--vocabularies=x: 'x' is no whole number"),
        ({"gigabits": ""}, "--gigabits= is empty"),
        ({"train_flags": "--strategy=mirrored"}, "--strategy is for the benchmark to set"),
        ({"train_flags": "--dim=3"}, "--dim is for the benchmark to set"),
        ({"corpus": "no_such_file"}, "--corpus=no_such_file: no such file"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(corpus, ran, options, message):
    with pytest.raises(UsageError, match=message):
        scaling_case.run(ScalingOptions(**{"corpus": corpus} | options))
    assert ran == []


@pytest.mark.slow
def test_runs_that_were_kept_are_not_trained_on(corpus, ran, tmp_path):
    options = ScalingOptions(
        corpus=corpus, workers="2", sync_steps="", keep=str(tmp_path), modelled=""
    )
    scaling_case.run(options)
    assert (tmp_path / "parameter_server-2-1" / "train.log").exists()
    with pytest.raises(UsageError, match="--keep=.*: has none-1 already; give another"):
        scaling_case.run(options)


def test_what_metrics_tell_of_a_run():
    rows = [
        {"step": 4, "epoch": 1, "words": 100, "train_seconds": 5.0, "exchanged_bytes": 10},
        {"step": 4, "epoch": 1, "ws353": 0.5},
        {"step": 8, "epoch": 2, "words": 200, "train_seconds": 6.0, "exchanged_bytes": 10},
        {"step": 16, "epoch": 4, "words": 400, "train_seconds": 8.0, "exchanged_bytes": 30},
    ]
    rows = [row | {"input_wait": 0.25} if "words" in row else row for row in rows]
    # The last mark is of processes of which some have ended.
    marks = [Mark(1, 20.0), Mark(2, 20.5), Mark(3, 21.0), Mark(4, 9.0)]
    values = scaling_meter.read_metrics(rows, marks)
    assert values["words_per_second"] == 50 and values["later_words_per_second"] == 100
    assert values["processor_seconds"] == pytest.approx(1e6 * 1.0 / 100)
    assert values["exchanged_bytes"] == (8 * 10 + 8 * 30) / 16 and values["step_words"] == 25
    assert values["input_wait"] == 0.25 and values["calls_again"] is None
    short = scaling_meter.read_metrics(rows[:1], [])
    assert short["later_words_per_second"] is None and short["processor_seconds"] is None


@pytest.fixture
def bounded():
    """Ends a test that hangs, and so the processes that it has started."""

    def end(number, frame):
        raise AssertionError(f"still running after {SECONDS_AT_MOST} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(SECONDS_AT_MOST)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.slow
def test_all_strategies_side_by_side(tmp_path, bounded):
    options = ScalingOptions(
        corpus=str(write_corpus(tmp_path / "corpus", lines=3000)),
        dim=8,
        epochs=2,
        min_count=2,
        batch_tokens=256,
        workers="2",
        servers=1,
        sync_steps="4",
        vocabularies="",
        modelled="",
        train_flags=shlex.join(FLAGS),
    )
    sides = to_json(scaling_case.run(options))["sides"]
    assert list(sides) == [
        *("none", "multi_worker 2", "multi_worker 2 sync 4", "parameter_server 2")
    ]
    for side, own in sides.items():
        assert own["median"]["words_per_second"] > 0
        assert (own["median"]["bytes_per_word"] is None) == (side == "none")
    assert sides["none"]["median"]["words"] == sides["multi_worker 2"]["median"]["words"]
