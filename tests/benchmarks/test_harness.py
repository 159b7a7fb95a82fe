from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys

import pytest
from absl import flags

from app.errors import RunError, UsageError
from tests.benchmarks import harness, programs, scaling
from tests.benchmarks.harness import Measure, Report, Table, temporary_folder
from tests.integration.commands import ROOT, fresh, refusal
from tests.processes import is_running, until

MEASURES = (
    Measure("speed", "words/s", ",.0f", drawn=True),
    Measure("bytes", "memory, MB", ".1f", per=1e6),
    Measure("score", "score", ".3f", by_difference=True),
    Measure("wait", "waiting", ".1%", drawn=True),
)
RUNS = {
    "ours": [
        {"speed": 3000.0, "bytes": 5_000_000, "score": 0.51, "wait": 0.02, "log": "kept"},
        {"speed": 5000.0, "bytes": 7_000_000, "score": 0.53, "wait": 0.04},
    ],
    "peer": [
        {"speed": 900.0, "bytes": 2_000_000, "score": 0.55},
        {"speed": 1100.0, "bytes": 4_000_000, "score": 0.55},
    ],
}
MACHINE = {"processor": "cpu", "accelerators": [], "cores": 2, "memory_bytes": 2**31}
MACHINE |= {"system": "Linux", "versions": {"python": "3"}}


def report(*tables):
    return Report("a title", MACHINE, tables, {"words": 9}, ["a note"])


def parsed(*arguments):
    """The flags of a case with `dim`, `peers`, `sizes` and the shared ones."""
    values = flags.FlagValues()
    for name in ("repeats", "json", "plot", "keep", "dim"):
        harness.define(values, name)
    harness.define(values, "peers", "a,b", "Peers.", names=("a", "b"))
    harness.define(values, "sizes", "30,4", "Sizes.", numbers=2)
    values(["case", *arguments])
    return values


def cells(text):
    return [" ".join(line.split()) for line in text.splitlines()]


def test_sides_run_by_turns_and_the_order_is_reversed():
    seen = []

    def run(job, seed):
        seen.append((job, seed))
        return {"speed": float(seed)}

    groups = {"one": {"ours": 1, "peer": 2}, "two": {"ours": 3}}
    runs = harness.by_turns(groups, 3, run)
    assert seen == [(1, 1), (2, 1), (3, 1), (3, 2), (2, 2), (1, 2), (1, 3), (2, 3), (3, 3)]
    assert runs["one"]["peer"] == [{"speed": 1.0}, {"speed": 2.0}, {"speed": 3.0}]


def test_a_side_that_fails_leaves_the_others_and_the_report(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(harness.startup, "start_tensorflow", lambda: None)  # it freezes garbage

    def run(job, seed):
        if job == "peer":
            raise RunError("it ended with exit code 1: no disk")
        return {"speed": 2.0}

    def measured(options):
        runs = harness.by_turns({"": {"ours": "ours", "peer": "peer"}}, options.repeats, run)
        return report(Table(runs[""], MEASURES[:1]))

    options = parsed(f"--json={tmp_path}/o.json", "--repeats=2")
    with pytest.raises(RunError, match="2 of 4 runs failed, first peer: it ended with exit code"):
        harness.measure("case", measured, options)
    assert "left out: peer: it ended with exit code 1: no disk" in capsys.readouterr().out
    record = json.loads((tmp_path / "o.json").read_text())
    assert record["sides"]["ours"]["median"] == {"speed": 2.0}
    assert record["sides"]["peer"]["median"] == {"speed": None} and record["compared"]["peer"] == {}


def test_the_record_has_runs_medians_and_comparisons():
    options = parsed("--dim=7", "--peers=b", "--sizes=")
    record = harness.to_record("case", report(Table(RUNS, MEASURES)), options)
    assert record["settings"] == {"repeats": 1, "keep": "", "dim": 7, "peers": ["b"], "sizes": []}
    assert (record["case"], record["words"]) == ("case", 9)
    assert record["sides"]["ours"]["runs"] == RUNS["ours"]
    medians = {"speed": 4000.0, "bytes": 6_000_000, "score": 0.52, "wait": 0.03}
    assert record["sides"]["ours"]["median"] == medians
    assert record["sides"]["peer"]["median"]["wait"] is None
    assert record["compared"]["peer"]["speed"] == {"ratio": 4.0, "difference": 3000.0}
    two = report(Table(RUNS, MEASURES, "a"), Table(RUNS, MEASURES, "b", (), [("peer", "ours")]))
    assert harness.to_record("case", two, options)["tables"]["b"]["compared"].keys() == {
        "peer : ours"
    }


def test_the_table_shows_medians_every_run_and_the_comparison():
    text = harness.table_text(Table(RUNS, MEASURES, "title"))
    assert cells(text) == [
        "title",
        "words/s memory, MB score waiting",
        "ours 4,000 6.0 0.520 3.0%",
        "run 1 3,000 5.0 0.510 2.0%",
        "run 2 5,000 7.0 0.530 4.0%",
        "peer 1,000 3.0 0.550 n/a",
        "run 1 900 2.0 0.550 n/a",
        "run 2 1,100 4.0 0.550 n/a",
        "ours : peer 4.00 x 2.00 x -0.030 n/a",
    ]
    many = [Measure(f"speed{n}", f"words/s of side {n}", ".0f") for n in range(10)]
    wide = Table({"ours": [{measure.key: 5.0 for measure in many}]}, many)
    assert cells(harness.table_text(wide))[:2] == ["ours", "words/s of side 0 5"]


def test_the_time_from_start_to_end_comes_first():
    runs = {"ours": [{"total_seconds": 5.0}], "peer": [{"total_seconds": 20.0}]}
    text = harness.to_text(report(Table(runs, [harness.TOTAL])))
    head, first, *_, note = text.split("\n\n")
    assert head == "a title\ncpu; 2 cores, 2 GiB; Linux; python 3" and note == "a note"
    assert first == (
        "from start to end ours takes 5.0 s and peer 20.0 s: ours is 4.00 times as fast"
    )


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".SVG", b"<?xml")])
def test_a_picture_is_drawn(tmp_path, suffix, start):
    pytest.importorskip("matplotlib")
    path = tmp_path / f"bars{suffix}"
    far = {"ours": [{"speed": 1.0}], "peer": [{"speed": 900.0}], "none": [{"left_out": "no"}]}
    below = {"ours": [{"score": -0.2}]}
    shown = [MEASURES[2]._replace(drawn=True)]
    tables = Table(RUNS, MEASURES), Table(far, MEASURES[:1], "far", ("peer",)), Table(below, shown)
    harness.draw(report(*tables), str(path))
    assert path.read_bytes().startswith(start) and list(tmp_path.iterdir()) == [path]
    harness.draw(report(), str(path))  # every side was left out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--repeats=0"], "--repeats=0: give at least 1"),
        (["--peers=a,c"], "--peers=a,c: value should be one of <a|b>"),
        (["--sizes=1"], "--sizes=1: give at least 2"),
        (["--sizes=x"], "--sizes=x: give a whole number"),
    ],
)
def test_a_value_that_cannot_be_is_refused(arguments, message):
    with pytest.raises(flags.IllegalFlagValueError, match=message):
        parsed(*arguments)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--json={folder}", "--json=.* is a folder"),
        ("--plot={folder}/file/bars.png", "--plot=.*bars.png: .*; choose another"),
        ("--plot={folder}/bars.txt", "--plot=.*bars.txt: give a name that ends in .png"),
        ("--keep={folder}/file", "--keep=.*/file: .*; choose another"),
    ],
)
def test_an_output_that_cannot_be_is_refused_before_any_work(tmp_path, argument, message):
    pytest.importorskip("matplotlib")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=message):
        harness.measure("case", pytest.fail, parsed(argument.format(folder=tmp_path)))


def test_a_missing_matplotlib_is_one_line(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="--plot=bars.png: matplotlib is missing; pip install"):
        harness.measure("case", pytest.fail, parsed("--plot=bars.png"))


def test_a_refusal_is_all_that_is_said_and_help_is_of_the_case():
    ended = fresh("tests.benchmarks.words", "--peers=other")
    assert refusal(ended) == "words: --peers=other: value should be one of <gensim>"
    ended = fresh("tests.benchmarks.keras", "--help")
    assert ended.code == 0 and "--hot_share\n" in ended.out and "--window" not in ended.out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("--prefetch=3 --dim=3", "--dim is for the benchmark to set"),
        ("-workdir x", "--workdir is for the benchmark to set"),
        ("--x='", "mend the quotes"),
    ],
)
def test_flags_of_the_benchmark_are_not_for_train_flags(text, message):
    with pytest.raises(UsageError, match=message):
        programs.split_flags(text, {"dim", "workdir"})
    assert programs.split_flags("--a=1 --b='c d'", {"dim"}) == ["--a=1", "--b=c d"]


def test_figures_of_metrics():
    rows = [
        {"words": 100, "step": 1, "train_seconds": 4.0, "input_wait": 0.5},
        {"words": 400, "step": 3, "train_seconds": 5.0, "input_wait": 0.0},
    ]
    speeds = programs.speeds(programs.Usage(0.0, 9.0, 1), rows)
    assert speeds["words_per_second"] == 80 and speeds["later_words_per_second"] == 300
    assert speeds["input_wait"] == pytest.approx(0.4) and speeds["total_seconds"] == 9
    assert programs.later_speed(rows[:1], "words") is None
    assert programs.mean(rows, "exchanged_bytes", "step") is None
    with pytest.raises(RunError, match="gensim trained on 10 words, not on the 100"):
        programs.check_count("gensim", 10, 100, "words")


def test_processor_time_is_of_all_that_came_from_a_process(tmp_path):
    for number, parent, ticks in ((1, 0, 9), (7, 1, 100), (8, 7, 20), (9, 8, 3), (10, 1, 50)):
        (tmp_path / str(number)).mkdir()
        fields = [str(number), "(a) name)", "S", str(parent), *"000000000", str(ticks), "1"]
        (tmp_path / str(number) / "stat").write_text(" ".join(fields))
    (tmp_path / "11").mkdir()  # it has ended meanwhile
    per_second = 1 / scaling.descendant_seconds(8, tmp_path) * 4
    assert scaling.descendant_seconds(7, tmp_path) * per_second == pytest.approx(21 + 4)
    assert scaling.processor_seconds([(1e6, 2.0), (3e6, 6.0), (4e6, 1.0)]) == 2.0
    assert scaling.processor_seconds([]) is scaling.processor_seconds([(5, 1.0)]) is None


SLEEPS = """
import os
from pathlib import Path
from tests.benchmarks import programs
from tests.benchmarks import harness
child = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
run = lambda options: programs.measure("side", ["-c", child], Path(os.environ["LOG"]))
harness.main(lambda values: None, run)
"""


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)],
)
def test_a_signal_leaves_neither_the_measured_program_nor_its_files(tmp_path, number):
    place, log = tmp_path / "temporary", tmp_path / "log"
    place.mkdir()
    log.touch()
    environment = {**os.environ, "TMPDIR": str(place), "LOG": str(log)}
    program = [sys.executable, "-c", SLEEPS]
    running = subprocess.Popen(
        program, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
    )
    until(lambda: log.read_text().endswith("\n"))
    (folder,) = place.iterdir()
    running.send_signal(number)
    _, said = running.communicate()
    until(lambda: not is_running(int(log.read_text())))
    if number == signal.SIGKILL:
        with temporary_folder("lexrow-benchmark-", str(place)) as other:
            assert [str(path) for path in place.iterdir()] == [other] != [str(folder)]
    else:
        assert (running.returncode, said) == (130, "-c: interrupted\n")
    assert not [*place.iterdir()]
