from __future__ import annotations

import importlib.util
import json

import numpy as np
import pytest

from app.benchmarks.harness import programs
from app.benchmarks.harness.options import WordsOptions
from app.benchmarks.harness.report import to_json, to_text
from app.benchmarks.words import words_case
from app.errors import RunError, UsageError
from app.exporting import word2vec
from app.system import processes
from app.types import WordVectors

PAIRED = ["tiger", "cat", "old", "new", "love", "sex", "smart", "stupid"]


def stand_in(seconds, trained=1.0, jobs=None):
    """A side that trains in no time, and tells what it was given to do."""

    def run(job):
        text = job.text.read_text().split()
        if jobs is not None:
            jobs.append((seconds, job))
        matrix = np.random.default_rng(job.settings["seed"]).normal(size=(len(PAIRED), 4))
        word2vec.write(WordVectors(PAIRED, matrix.astype(np.float32)), job.vectors, binary=True)
        return {
            "words": round(len(text) * job.settings["epochs"] * trained),
            "train_seconds": seconds,
            "vocabulary_seconds": 1.0,
            "total_seconds": seconds + 2,
            "peak_bytes": 300_000_000,
        }

    return run


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "text"
    path.write_text("some words of text\n" * 500)
    return str(path)


@pytest.fixture
def sides(monkeypatch):
    """Stand-ins for both sides: 2 seconds and 6 seconds; gives the jobs they were given."""
    jobs = []
    monkeypatch.setitem(words_case.SIDES, "lexrow", stand_in(2.0, jobs=jobs))
    monkeypatch.setitem(words_case.SIDES, "gensim", stand_in(6.0, jobs=jobs))
    bare = processes.Usage(0.0, 1.0, 100_000_000)
    monkeypatch.setattr(programs, "import_usage", lambda module: bare)
    return jobs


@pytest.mark.slow
def test_both_sides_get_the_same_text_and_settings(corpus, sides):
    words_case.run(
        WordsOptions(corpus=corpus, repeats=2, dim=7, train_flags="--prefetch=3 --readers=2")
    )
    assert [seconds for seconds, _ in sides] == [2.0, 6.0, 6.0, 2.0]
    jobs = [job for _, job in sides]
    assert len({job.text for job in jobs}) == 1
    assert [job.settings["seed"] for job in jobs] == [1, 1, 2, 2]
    assert all(job.settings["dim"] == 7 and job.settings["min_count"] == 5 for job in jobs)
    assert jobs[0].train_flags == ["--prefetch=3", "--readers=2"]
    assert len({job.vectors for job in jobs}) == 4


@pytest.mark.slow
def test_the_record_is_whole(corpus, sides, tmp_path):
    options = WordsOptions(corpus=corpus, repeats=3, epochs=4, keep=str(tmp_path))
    report = words_case.run(options)
    record = json.loads(json.dumps(to_json(report), allow_nan=False))
    assert record["case"] == "words" and record["corpus"]["words"] == 2000
    assert record["machine"]["versions"].keys() == {"python", "tensorflow", "numpy", "gensim"}
    ours, peer = record["sides"]["lexrow"], record["sides"]["gensim"]
    assert ours["median"]["words_per_second"] == 2000 * 4 / 2
    assert ours["median"]["peak_bytes_above_import"] == 200_000_000
    assert peer["median"]["input_wait"] is None
    assert len(ours["runs"]) == len(peer["runs"]) == 3
    ratios = {key: value["ratio"] for key, value in record["compared"]["gensim"].items()}
    assert ratios["words_per_second"] == 3 and ratios["total_seconds"] == 0.5
    run = ours["runs"][0]
    assert run["ws353"] == run["scores"]["ws353"]["value"]
    assert run["scores"]["ws353"]["used"] >= 2 and "8 words" in run["scores"]["ws353"]["protocol"]
    assert run["analogy"] is None and "analogy" not in to_text(report)
    assert (tmp_path / "gensim-3" / "vectors.bin").exists()
    assert report.title.startswith("2,000 words, skipgram, negative_sampling, epochs 4, dim 100")
    assert {panel.measure.key for panel in report.panels} >= {"words_per_second", "ws353"}


def test_ours_alone_needs_no_peer(corpus, sides):
    report = words_case.run(WordsOptions(corpus=corpus, peers=""))
    assert to_json(report)["sides"].keys() == {"lexrow"} and to_json(report)["compared"] == {}


@pytest.mark.slow
def test_a_side_that_skips_text_has_no_speed(corpus, sides, monkeypatch):
    monkeypatch.setitem(words_case.SIDES, "gensim", stand_in(6.0, trained=0.1))
    with pytest.raises(RunError, match="gensim trained on 1,000 words, not on the 10,000"):
        words_case.run(WordsOptions(corpus=corpus))


def test_a_missing_peer_is_one_line(corpus, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="--peers=gensim: gensim is not installed; pip install"):
        words_case.run(WordsOptions(corpus=corpus))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"peers": "gensim,other"}, "other is no peer of words; choose from gensim"),
        ({"peers": "lexrow"}, "lexrow is no peer of words"),
        ({"train_flags": "--prefetch=3 --dim=3"}, "--dim is for the benchmark to set"),
        ({"train_flags": "-workdir x"}, "--workdir is for the benchmark to set"),
        ({"train_flags": "--x='"}, "mend the quotes"),
        ({"corpus": "no_such_file"}, "--corpus=no_such_file: no such file"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(corpus, sides, options, message):
    with pytest.raises(UsageError, match=message):
        words_case.run(WordsOptions(**{"corpus": corpus} | options))
    assert sides == []


def test_a_corpus_without_words_is_refused(tmp_path, sides):
    (tmp_path / "text").write_text(" \n\n")
    with pytest.raises(UsageError, match="no word in these files"):
        words_case.run(WordsOptions(corpus=str(tmp_path / "text")))


@pytest.mark.slow
def test_gensim_trains_on_every_word(tmp_path):
    pytest.importorskip("gensim")
    random = np.random.default_rng(0)
    lines = [" ".join(random.choice(PAIRED, size=900)) for _ in range(20)]
    (tmp_path / "text").write_text("\n".join(lines) + "\n")
    settings = words_case._shared(WordsOptions(dim=8, epochs=2), 0)
    job = words_case.Job(tmp_path / "text", tmp_path, settings, [])
    values = words_case._gensim(job)
    assert values["words"] >= 2 * 20 * 900
    assert 0 < values["vocabulary_seconds"] < values["total_seconds"]
    assert 0 < values["train_seconds"] < values["total_seconds"]
    assert words_case._scores(job.vectors)["scores"]["ws353"]["used"] >= 2


@pytest.mark.slow
def test_trainer_and_gensim_side_by_side(tmp_path):
    pytest.importorskip("gensim")
    random = np.random.default_rng(0)
    lines = [" ".join(random.choice(PAIRED, size=200)) for _ in range(200)]
    (tmp_path / "text").write_text("\n".join(lines) + "\n")
    report = words_case.run(WordsOptions(corpus=str(tmp_path / "text"), dim=8, epochs=2))
    ours = to_json(report)["sides"]["lexrow"]["median"]
    assert ours["words_per_second"] > 0 and 0 <= ours["input_wait"] <= 1
    assert 0 < ours["vocabulary_seconds"] < ours["total_seconds"]
    assert ours["peak_bytes"] > ours["peak_bytes_above_import"] > 0
    assert to_json(report)["compared"]["gensim"]["words_per_second"]["ratio"] > 0
