from __future__ import annotations

import json

import pytest

from app.benchmarks.classify import classify_case
from app.benchmarks.harness import labelled_corpora, machine
from app.benchmarks.harness.options import ClassifyOptions
from app.benchmarks.harness.report import to_json, to_text
from app.errors import RunError, UsageError
from app.system import processes

LINES = [f"__label__{'good' if i % 2 else 'bad'} text number {i}" for i in range(40)]


def stand_in(seconds, jobs, right=1.0):
    """A side that trains in no time, and is right about so large a share of the texts."""

    def run(job):
        jobs.append((seconds, job))
        labels = [own[0] for own in job.split.labels]
        told = [label if i < right * len(labels) else "none" for i, label in enumerate(labels)]
        job.predictions.write_text("".join(f"{label} 0.5\n" for label in told))
        usage = processes.Usage(0.0, seconds + 1, 300_000_000)
        return classify_case.Times(seconds, 5.0, usage, usage)

    return run


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "texts"
    path.write_text("\n".join(LINES) + "\n\n")
    return str(path)


@pytest.fixture
def jobs(monkeypatch):
    """Stand-ins for both sides; gives their seconds, and the jobs they were given."""
    given = []
    monkeypatch.setitem(classify_case.SIDES, "lexrow", stand_in(2.0, given))
    monkeypatch.setitem(classify_case.SIDES, "fasttext", stand_in(6.0, given, right=0.5))
    monkeypatch.setattr(
        classify_case.trainer, "sides", lambda value, known, case: ["lexrow", *value.split(",")]
    )
    bare = processes.Usage(0.0, 1.0, 100_000_000)
    monkeypatch.setattr(
        classify_case.trainer,
        "measure_imports",
        lambda names, known: (machine.describe([]), dict.fromkeys(names, bare)),
    )
    return given


def test_both_sides_get_the_same_split_and_settings(corpus, jobs):
    classify_case.run(ClassifyOptions(corpus=corpus, repeats=2, dim=7, train_flags="--prefetch=3"))
    assert [seconds for seconds, _ in jobs] == [2.0, 6.0, 2.0, 6.0, 6.0, 2.0, 6.0, 2.0]
    found = [job for _, job in jobs]
    assert [job.settings["word_ngrams"] for job in found] == [1, 1, 2, 2, 2, 2, 1, 1]
    assert [job.settings["seed"] for job in found] == [1] * 4 + [2] * 4
    assert [job.split.train.name for job in found] == ["train-1.txt"] * 4 + ["train-2.txt"] * 4
    assert all(job.settings["dim"] == 7 for job in found)
    assert found[0].train_flags == ["--prefetch=3"]


def test_the_record_is_whole(corpus, jobs, tmp_path):
    report = classify_case.run(ClassifyOptions(corpus=corpus, keep=str(tmp_path)))
    record = json.loads(json.dumps(to_json(report), allow_nan=False))
    assert record["case"] == "classify" and record["texts"] == 40
    found = record["word_ngrams"]["2"]
    ours = found["sides"]["lexrow"]["median"]
    assert ours["accuracy"] == 1 and ours["examples_per_second"] == 36 * 5 / 2
    assert ours["words_per_second"] == 36 * 3 * 5 / 2
    assert ours["beyond_import_seconds"] == 2 and ours["total_seconds"] == 6
    compared = found["compared"]["fasttext"]
    assert compared["accuracy"]["difference"] == 0.5 and compared["train_seconds"]["ratio"] == 1 / 3
    assert "single words" in to_text(report) and "n-grams of up to 2 words" in to_text(report)
    assert len(report.panels) == 2 * 4 and report.panels[0].title == "words: accuracy"
    split = jobs[0][1].split
    texts = split.test.read_text().splitlines()
    trained = split.train.read_text().splitlines()
    assert len(texts) == len(split.labels) == 4 and len(trained) == split.examples == 36
    lines = [f"{label} {text}" for (label,), text in zip(split.labels, texts, strict=True)]
    assert sorted(lines + trained) == sorted(LINES)


def test_a_file_a_label_is_the_same_as_lines(corpus, tmp_path):
    for name in ("good", "bad"):
        of_label = [line.split(" ", 1)[1] for line in LINES if name in line]
        (tmp_path / name).write_text("\n".join(of_label) + "\n \n")
    named = f"good:{tmp_path / 'good'}, bad:{tmp_path / 'bad'}"
    assert sorted(labelled_corpora.read("", named)) == sorted(labelled_corpora.read(corpus, ""))


def test_any_of_the_labels_of_a_text_is_right(tmp_path):
    (tmp_path / "predictions").write_text("__label__a 0.9\nb\t0.8\n\nc 0.1\n")
    labels = [["__label__b", "__label__a"], ["__label__b"], ["__label__a"], ["__label__a"]]
    assert classify_case.accuracy(tmp_path / "predictions", labels) == 0.5
    with pytest.raises(RunError, match="4 lines for 1 texts"):
        classify_case.accuracy(tmp_path / "predictions", labels[:1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"corpus": ""}, "give either --corpus"),
        ({"labelled": "a:b"}, "give either --corpus"),
        ({"corpus": "", "labelled": "good"}, "--labelled=good: good is no LABEL:FILE"),
        ({"corpus": "no_such_file"}, "--corpus=no_such_file: no such file"),
        ({"word_ngrams": "0"}, "--word_ngrams=0: give at least 1"),
        ({"train_flags": "--dim=3"}, "--dim is for the benchmark to set"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(corpus, jobs, options, message):
    with pytest.raises(UsageError, match=message):
        classify_case.run(ClassifyOptions(**{"corpus": corpus} | options))
    assert jobs == []


@pytest.mark.parametrize(
    ("text", "message"),
    [("no label\n" * 30, "no label in `no label`"), ("__label__a b\n", "1 texts are too few")],
)
def test_texts_that_cannot_be_are_refused(tmp_path, text, message):
    (tmp_path / "texts").write_text(text)
    with pytest.raises(UsageError, match=message):
        labelled_corpora.read(str(tmp_path / "texts"), "")


def job(corpus, tmp_path):
    split = labelled_corpora.split(labelled_corpora.read(corpus, ""), tmp_path, 0)
    settings = classify_case._shared(ClassifyOptions(dim=4, epochs=5), 2, 0) | {"buckets": 100}
    return classify_case.Job(tmp_path, split, settings, [], rate=0.5)


def check(took, given):
    assert 0 < took.train_seconds < took.trained.seconds
    assert 0 <= classify_case.accuracy(given.predictions, given.split.labels) <= 1


@pytest.mark.slow
def test_fasttext_trains_and_predicts(corpus, tmp_path):
    pytest.importorskip("fasttext")
    given = job(corpus, tmp_path)
    check(classify_case._fasttext(given), given)


@pytest.mark.slow
def test_the_trainer_trains_and_predicts(corpus, tmp_path):
    given = job(corpus, tmp_path)
    check(classify_case._lexrow(given), given)
