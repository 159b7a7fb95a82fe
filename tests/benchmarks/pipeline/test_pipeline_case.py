from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from app.benchmarks.harness import machine, programs
from app.benchmarks.harness.options import PipelineOptions
from app.benchmarks.harness.report import to_json, to_text
from app.benchmarks.pipeline import pipeline_case
from app.errors import RunError, UsageError
from app.system import processes
from tests.integration.commands import SMALL, done, write_corpus

# Of stand-ins for processes: examples or words a second.
SPEEDS = {"ours": 50.0, "naive": 5.0, "prefetch": 10.0, "parallel": 2.0}
SPEEDS |= {"vectorised": 40.0, "cached": 400.0, "map": 4.0, "generator": 2.0}
ROWS = [
    {"words": 100, "train_seconds": 10.0, "input_wait": 0.9},
    {"words": 300, "train_seconds": 12.0, "input_wait": 0.1},
    {"words": 900, "train_seconds": 20.0, "input_wait": 0.0},
]
TRAIN_FLAGS = shlex.join(flag for flag in SMALL if not flag.startswith(("--epochs", "--min_count")))
ALL = [side for sides in pipeline_case.SIDES.values() for side in sides]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "text"
    path.write_text("some words of text\n" * 10 + "one long line " * 20 + "\n")
    return str(path)


@pytest.fixture
def ran(monkeypatch):
    """Stand-ins for the processes; gives what they were given, by turns."""
    given = []

    def run(name, arguments, log, *files):
        given.append((name, arguments))
        if name == "app.train":
            (workdir,) = (a.partition("=")[2] for a in arguments if a.startswith("--workdir="))
            (Path(workdir) / "vocab.tsv").write_text("some\t10\n")
            text = "".join(json.dumps(row) + "\n" for row in ROWS)
            (Path(workdir) / "metrics.jsonl").write_text(text)
            return processes.Usage(0.0, 1.0, 10**9)
        job = json.loads(arguments[-1])
        if "text" in job:
            assert Path(job["vocabulary"]).read_text() == "some\t10\n"
            values = {"words_per_second": SPEEDS[job["side"]], "known": 7}
            values |= {"lines": Path(job["text"]).read_text().splitlines()}
        else:
            values = {"examples_per_second": SPEEDS[job["side"]], "waiting": 0.25, "accuracy": 0.5}
        Path(job["result"]).write_text(json.dumps(values | {"first_seconds": 1.0}))

        return processes.Usage(0.0, 1.0, 10**9)

    monkeypatch.setattr(processes, "run", run)
    monkeypatch.setattr(machine, "_accelerators", list)
    return given


def sides(given):
    return [json.loads(a[-1])["side"] if n != "app.train" else "trainer" for n, a in given]


def test_every_side_runs_once_a_repeat_the_trainer_first(corpus, ran):
    pipeline_case.run(PipelineOptions(corpus=corpus, repeats=2, examples=7, example_epochs=3))
    assert sides(ran) == ALL + ALL[::-1]
    jobs = [json.loads(a[-1]) for n, a in ran if n != "app.train"]
    classifier = [job for job in jobs if "examples" in job]
    assert {(job["examples"], job["epochs"]) for job in classifier} == {(7, 3)}
    assert [job["seed"] for job in classifier] == [1] * 4 + [2] * 4


def test_the_trainer_gets_what_was_asked_for(corpus, ran):
    pipeline_case.run(
        PipelineOptions(
            corpus=corpus, tokenizer="unicode", min_count=2, epochs=3, train_flags="--dim=7"
        )
    )
    arguments = ran[0][1]
    assert arguments[:3] == ["-m", "app.train", "--flagfile=configs/words.cfg"]
    wanted = {f"--corpus={corpus}", "--tokenizer=unicode", "--min_count=2", "--epochs=3"}
    assert wanted | {"--dim=7", "--cache=none"} <= set(arguments)
    texts = [json.loads(a[-1]) for n, a in ran if "text" in a[-1]]
    assert {job["tokenizer"] for job in texts} == {"unicode"}


def test_the_record_is_whole(corpus, ran):
    report = pipeline_case.run(PipelineOptions(corpus=corpus, repeats=3, json="elsewhere.json"))
    record = json.loads(json.dumps(to_json(report), allow_nan=False))
    assert record["case"] == "pipeline" and record["settings"]["examples"] == 10_000
    assert corpus not in json.dumps(record["settings"])
    assert (
        record["corpus"].items()
        >= {
            "files": ["text"],
            "words": 100,
            "line_words": 20,
        }.items()
    )
    assert {"python", "tensorflow", "keras", "numpy"} <= record["machine"]["versions"].keys()
    for part, names in pipeline_case.SIDES.items():
        assert tuple(record[part]["sides"]) == names
        assert all(len(own["runs"]) == 3 for own in record[part]["sides"].values())
    compared = record["classifier"]["compared"]
    assert compared["naive"]["examples_per_second"]["ratio"] == 10
    assert record["text"]["compared"]["generator"]["words_per_second"]["ratio"] == 20
    trainer = record["trainer"]["sides"]["trainer"]["median"]
    assert trainer == {"words_per_second": 80.0, "waiting": 0.02}
    assert report.title.startswith("Input pipelines: 10,000 examples, 100 words of text (whites")
    assert [(len(p.values), p.ours, p.log) for p in report.panels] == [
        (4, 1, True),
        (4, 2, True),
        (5, 2, False),
    ]
    assert list(report.panels[2].values) == ["trainer", "ours", "naive", "prefetch", "parallel"]
    assert "ours : naive" in to_text(report) and "vectorised : generator" in to_text(report)


def test_long_lines_are_cut_and_the_text_is_as_long_as_asked_for(corpus, ran):
    record = to_json(pipeline_case.run(PipelineOptions(corpus=corpus, words=75, peers="")))
    lines = record["text"]["sides"]["vectorised"]["runs"][0]["lines"]
    assert [len(line.split()) for line in lines] == [4] * 10 + [20, 20]
    assert record["corpus"]["words"] == 80


def test_ours_alone_needs_no_peer(corpus, ran):
    report = pipeline_case.run(PipelineOptions(corpus=corpus, peers=""))
    assert sides(ran) == ["trainer", "ours", "vectorised", "cached"]
    assert to_json(report)["classifier"]["compared"] == {}


def test_the_first_interval_and_a_run_without_another_do_not_count():
    assert pipeline_case.steady(ROWS) == {"words_per_second": 80.0, "waiting": 0.02}
    assert pipeline_case.steady(ROWS[:1]) == {"words_per_second": None, "waiting": None}


def test_a_trainer_with_one_interval_has_no_bar(corpus, ran, monkeypatch):
    monkeypatch.setattr(pipeline_case, "steady", lambda rows: {"words_per_second": None})
    report = pipeline_case.run(PipelineOptions(corpus=corpus, peers=""))
    assert list(report.panels[2].values) == ["ours"] and report.panels[2].ours == 1
    assert "n/a" in to_text(report)


def test_ways_that_give_other_tokens_have_no_speed(corpus, ran, monkeypatch):
    run = programs.run

    def odd(name, module, job):
        values, usage = run(name, module, job)
        return values | {"known": 7 + (job["side"] == "map")}, usage

    monkeypatch.setattr(programs, "run", odd)
    with pytest.raises(RunError, match="vectorised 7, cached 7, map 8, generator 7"):
        pipeline_case.run(PipelineOptions(corpus=corpus))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"peers": "naive,gensim"}, "gensim is no peer of pipeline; choose from naive, prefetch"),
        ({"train_flags": "--dim=3 --epochs=3"}, "--epochs is for the benchmark to set"),
        ({"train_flags": "--workdir x"}, "--workdir is for the benchmark to set"),
        ({"train_flags": "--x='"}, "mend the quotes"),
        ({"corpus": "no_such_file"}, "--corpus=no_such_file: no such file"),
        ({"examples": 0}, "--examples=0: give at least 1"),
        ({"example_epochs": 1}, "--example_epochs=1: give at least 2"),
        ({"words": 0}, "--words=0: give at least 1"),
        ({"tokenizer": "spaces"}, "--tokenizer=spaces: not one of whitespace, unicode"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(corpus, ran, options, message):
    with pytest.raises(UsageError, match=message):
        pipeline_case.run(PipelineOptions(**{"corpus": corpus} | options))
    assert ran == []


def test_a_corpus_without_words_is_refused(tmp_path, ran):
    (tmp_path / "text").write_text(" \n\n")
    with pytest.raises(UsageError, match="no word in these files"):
        pipeline_case.run(PipelineOptions(corpus=str(tmp_path / "text")))


@pytest.mark.slow
def test_a_side_is_a_process_of_its_own():
    job = {"side": "naive", "examples": 40, "epochs": 2, "seed": 1}
    values, _ = programs.run("naive", "pipeline.pipeline_classifier", job)
    assert values["examples_per_second"] > 0
    job = {"side": "generator", "text": "no_such_file"}
    with pytest.raises(RunError, match="generator ended with exit code 1: KeyError"):
        programs.run("generator", "pipeline.pipeline_text", job)


SMALLER = {"examples": 300, "example_epochs": 2, "epochs": 2, "min_count": 2}


def assert_whole(record, names):
    for part, wanted in names.items():
        sides = record[part]["sides"]
        assert tuple(sides) == wanted
        for own in sides.values():
            assert all(value is not None for value in own["median"].values())
            assert 0 <= own["median"].get("waiting", 0) <= 1


@pytest.mark.slow
def test_ours_end_to_end(tmp_path):
    written = tmp_path / "out.json"
    flags = [f"--{name}={value}" for name, value in SMALLER.items()]
    flags += [f"--corpus={write_corpus(tmp_path / 'corpus')}", f"--train_flags={TRAIN_FLAGS}"]
    ended = done(tmp_path, "app.bench", "pipeline", "--peers=", f"--json={written}", *flags)
    assert ended.out.startswith("Input pipelines: 300 examples, ")
    names = {"trainer": ("trainer",), "classifier": ("ours",), "text": ("vectorised", "cached")}
    assert_whole(json.loads(written.read_text()), names)


@pytest.mark.slow
def test_all_sides_side_by_side(tmp_path):
    options = SMALLER | {"train_flags": TRAIN_FLAGS, "tokenizer": "unicode"}
    corpus = str(write_corpus(tmp_path / "corpus"))
    record = to_json(pipeline_case.run(PipelineOptions(corpus=corpus, **options)))
    assert_whole(record, pipeline_case.SIDES)
    assert record["classifier"]["compared"]["naive"]["examples_per_second"]["ratio"] > 1
