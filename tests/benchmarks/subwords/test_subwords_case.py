from __future__ import annotations

import json

import numpy as np
import pytest

from app.benchmarks.harness import fasttext_log, programs
from app.benchmarks.harness.report import to_json
from app.benchmarks.harness.subwords_options import SubwordsOptions
from app.benchmarks.subwords import subwords_case
from app.benchmarks.subwords.subwords_case import WITHOUT
from app.errors import UsageError
from app.system import processes
from app.types import WordVectors

PAIRED = ["tiger", "cat", "old", "new", "love", "sex", "smart", "stupid"]


@pytest.fixture
def corpus(tmp_path):
    random = np.random.default_rng(0)
    lines = [" ".join(random.choice(PAIRED, size=200)) for _ in range(100)]
    (tmp_path / "text").write_text("\n".join(lines) + "\n")
    return str(tmp_path / "text")


@pytest.fixture
def jobs(monkeypatch):
    """Stand-ins for all sides; the jobs that they were given."""
    given = []

    def stand_in(side, seconds):
        def run(job):
            given.append((side, job))
            matrix = np.random.default_rng(1).normal(size=(len(PAIRED), 4)).astype(np.float32)
            usage = processes.Usage(0.0, seconds + 1, 300_000_000)
            return subwords_case.Trained(seconds, usage, WordVectors(PAIRED, matrix))

        return run

    for side, seconds in (("lexrow", 2.0), (WITHOUT, 1.0), ("fasttext", 8.0)):
        monkeypatch.setitem(subwords_case.SIDES, side, stand_in(side, seconds))
    bare = processes.Usage(0.0, 1.0, 100_000_000)
    monkeypatch.setattr(programs, "import_usage", lambda module: bare)
    return given


@pytest.mark.slow
def test_every_side_gets_the_same_text_and_settings(corpus, jobs):
    report = subwords_case.run(SubwordsOptions(corpus=corpus, dim=7, train_flags="--prefetch=3"))
    assert [side for side, _ in jobs] == ["lexrow", WITHOUT, "fasttext"]
    assert len({job.text for _, job in jobs}) == 1
    assert all(job.settings["dim"] == 7 and job.settings["max_ngram"] == 6 for _, job in jobs)
    assert jobs[0][1].train_flags == ["--prefetch=3"]
    record = json.loads(json.dumps(to_json(report), allow_nan=False))
    assert record["case"] == "subwords"
    ours = record["sides"]["lexrow"]
    words = jobs[0][1].words
    assert ours["median"]["words_per_second"] == words * 5 / 2
    assert ours["median"]["peak_bytes_above_import"] == 200_000_000
    assert record["compared"]["fasttext"]["words_per_second"]["ratio"] == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"peers": "gensim"}, "gensim is no peer of subwords"),
        ({"train_flags": "--max_ngram=3"}, "--max_ngram is for the benchmark to set"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(corpus, jobs, options, message):
    with pytest.raises(UsageError, match=message):
        subwords_case.run(SubwordsOptions(**{"corpus": corpus} | options))
    assert jobs == []


def test_the_seconds_of_fasttext_are_those_of_its_last_line(tmp_path):
    (tmp_path / "log").write_text("words/sec/thread:  10 lr\rwords/sec/thread:  50 lr:  0.0\n")
    assert fasttext_log.train_seconds(tmp_path / "log", 1000, 2) == 10


@pytest.mark.slow
def test_all_sides_side_by_side(corpus):
    pytest.importorskip("fasttext")
    options = SubwordsOptions(corpus=corpus, dim=8, epochs=2, ngram_buckets=1000)
    report = to_json(subwords_case.run(options))
    for side in ("lexrow", WITHOUT, "fasttext"):
        median = report["sides"][side]["median"]
        assert median["words_per_second"] > 0 and median["ws353"] is not None
    used = {s: report["sides"][s]["runs"][0]["scores"]["ws353"]["used"] for s in report["sides"]}
    # Words without an n-gram of the text have a vector of fastText only, which it drew at random.
    assert used["fasttext"] > 300 > used["lexrow"] > used[WITHOUT] > 1
