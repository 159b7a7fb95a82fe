from __future__ import annotations

import json
import logging

import pytest

from app.checkpoints.workdir import Workdir
from app.errors import UsageError
from app.settings import CorpusConfig
from app.settings.checks import make_config
from app.tasks import recorded_corpus
from app.tasks.classify import classify_data, classify_job
from app.tasks.words import words_data
from app.text import corpus, unicode_rules

WHERE = CorpusConfig(), Workdir("run")


def test_only_the_recorded_text_is_recognized(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("a b")
    recorded = corpus.fingerprint((str(path),))
    assert recorded_corpus.recognize((str(path),), recorded, *WHERE, False) == recorded
    assert recorded_corpus.recognize((str(path),), None, *WHERE, False) is None
    path.write_text("a c")
    assert recorded_corpus.recognize((str(path),), recorded, *WHERE, True) is None
    with pytest.raises(UsageError, match="^--corpus=docstrings is not what --workdir=run was made"):
        recorded_corpus.recognize((str(path),), recorded, *WHERE, False)


def warnings_of(caplog, load):
    """The warnings about old words that a function logs."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="absl"):
        load()
    return [text for text in caplog.messages if "of an earlier version" in text]


def forget_rules(place):
    """Write corpus.json as earlier versions did."""
    recorded = json.loads(place.corpus.read_text())
    assert recorded.pop("word_rules") == unicode_rules.VERSION
    place.corpus.write_text(json.dumps(recorded))


@pytest.mark.parametrize("task", ["words", "classify"])
def test_a_workdir_with_words_of_earlier_rules_is_reported(tmp_path, caplog, task):
    path, place = tmp_path / "a.txt", Workdir(tmp_path / "run")
    path.write_text("__label__1 за́мок İstanbul\n__label__2 стол İstanbul\n" * 20)
    flags = {"task": task, "corpus": str(path), "tokenizer": "unicode", "workdir": str(place.path)}
    config = make_config(flags | {"min_count": 1})

    def load(config=config):
        if task == "words":
            how = config.corpus, config.input, config.vocabulary, place
            return words_data.load_text(*how, finished=False)
        return classify_job.load_data(config, place, finished=False)

    def record():
        if task == "words":
            words_data.record(load(), place)
        else:
            words = load()
            features = classify_data.load_features(config.labelled, words.words, place)
            classify_data.record(words, features, place)

    assert not warnings_of(caplog, record)  # a new workdir
    assert not warnings_of(caplog, load)
    forget_rules(place)
    (warning,) = warnings_of(caplog, load)
    assert warning.startswith(f"--workdir={place.path}: ")
    assert warning.endswith("train anew, with a new --workdir")
    record()  # as every start does; the words are the old ones still
    assert warnings_of(caplog, load)
    other = {"tokenizer": "whitespace"}
    assert not warnings_of(caplog, lambda: load(make_config(flags | other | {"min_count": 1})))
    place.vocabulary.write_text("istanbul\t20\nplace\t20\n")
    assert not warnings_of(caplog, load)
