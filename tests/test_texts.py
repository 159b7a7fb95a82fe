"""Classifiers of texts in Python."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import app as lexrow
from app import texts as module
from app.errors import RunError, StoppedError
from app.tasks.classify import tuning
from app.text import reading
from app.texts import Texts, _write_labelled
from app.trained import Run
from tests import examples

FAST = {"dim": 4, "epochs": 8, "learning_rate": 0.5, "seed": 1, **examples.QUICK}


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Texts:
    given = ["a good film", "a bad film", "a plain film"] * 60
    path = tmp_path_factory.mktemp("door") / "run"
    return lexrow.train_classifier(given, ["yes", "no", "so"] * 60, workdir=path, **FAST)


def test_examples(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples.run(module, {"texts": trained})


def test_predicting(trained):
    assert sorted(trained.labels) == ["no", "so", "yes"]
    assert trained.predict(["good", "bad", "plain"]) == ["yes", "no", "so"]
    assert trained.predict("good") == "yes"
    chances = trained.predict_proba(["good", "an unknown text", ""])
    np.testing.assert_allclose(chances.sum(1), 1, rtol=1e-5)
    assert trained.predict("good", k=2)[0] == ("yes", pytest.approx(chances[0].max()))
    assert len(trained.predict(["good", "bad"], k=9)[1]) == 3
    assert trained.predict([]) == []
    again = lexrow.load(trained.workdir)
    # Products of one text and of three differ in their last bits on some processors.
    np.testing.assert_allclose(again.predict_proba(["good"]), chances[:1], rtol=1e-5)


def test_a_classifier_is_pickled_with_its_files(trained):
    again = pickle.loads(pickle.dumps(trained))
    assert again.workdir != trained.workdir and again.labels == trained.labels
    np.testing.assert_array_equal(again.predict_proba(["good"]), trained.predict_proba(["good"]))


@pytest.mark.slow
def test_weights_of_texts(tmp_path):
    given = {"texts": ["one"] * 40, "labels": ["a", "b"] * 20, "weights": [3.0, 1] * 20}
    texts = lexrow.train_classifier(**given, workdir=tmp_path, **FAST | {"epochs": 60})
    assert texts.predict_proba("one")[texts.labels.index("a")] == pytest.approx(0.75, abs=0.05)


def test_evaluating(trained):
    scores = trained.evaluate(["good", "bad", "good"], ["yes", "no", "other"])
    assert scores["accuracy"] == pytest.approx(2 / 3)
    assert scores["labels"]["yes"]["precision"] == 0.5
    yes, no = map(trained.labels.index, ("yes", "no"))
    expected = np.zeros((4, 4), int)
    expected[yes, yes] = expected[no, no] = expected[3, yes] = 1
    np.testing.assert_array_equal(scores["confusion"], expected)
    first = trained.predict_proba(["good", "bad"]).max(1)
    gaps = [2 * first[0] - 1, first[1] - 1]  # of two texts, one is right
    if int(first[0] * 10) == int(first[1] * 10):
        gaps = [sum(gaps)]
    assert scores["calibration_error"] == pytest.approx(np.abs(gaps).sum() / 3, abs=1e-6)


def test_files_are_scored_after_training_on_lists_with_weights(tmp_path):
    given = {"texts": ["good", "bad"] * 40, "labels": ["yes", "no"] * 40}
    path = tmp_path / "run"
    texts = lexrow.train_classifier(**given, weights=[1.0] * 80, workdir=path, **FAST)
    (tmp_path / "one.csv").write_text("text,label\ngood,yes\nbad,no\n")
    assert texts.evaluate(tmp_path / "one.csv")["accuracy"] == 1
    (tmp_path / "two.csv").write_text("text,label\ngood,yes|no\nbad,no\n")
    scores = texts.evaluate(tmp_path / "two.csv", label_separator="|")
    assert scores["precision_at_1"] == 1 and scores["recall_at_1"] == pytest.approx(2 / 3)
    lines = tmp_path / "lines.txt"
    lines.write_text('__label__yes "good\n__label__no bad\n')
    assert texts.evaluate(lines)["accuracy"] == 1
    assert texts.evaluate(lines, text_column="", label_column="")["accuracy"] == 1
    for name in (
        "text_column",
        "label_column",
        "weight_column",
    ):  # one that is named is not ignored
        with pytest.raises(
            ValueError, match="^(text_column=text|text_column=x): .* has the columns"
        ):
            texts.evaluate(lines, **{name: "x"})
    with pytest.raises(ValueError, match="^weight_column=x: .*one.csv has the columns text, label"):
        texts.evaluate(tmp_path / "one.csv", weight_column="x")
    again = lexrow.train_classifier(**given, heldout=str(lines), **FAST)
    assert again.predict("good") == "yes"
    with pytest.raises(ValueError, match="^'foo' is no setting"):
        texts.evaluate(tmp_path / "one.csv", foo="x")
    with pytest.raises(ValueError, match=f"^the run in workdir={path} has weights; give weights"):
        lexrow.train_classifier(**given, workdir=path, epochs=9)
    with pytest.raises(ValueError, match="^path=.* belongs to the run of workdir="):
        texts.export(path / "flags.cfg")


def test_several_labels(tmp_path):
    given = ["red round", "red", "round", "blue"] * 50
    labels = [["r", "o"], ["r"], "o", ("b",)] * 50
    texts = lexrow.train_classifier(
        given, labels, loss="one_vs_all", workdir=tmp_path, **FAST | {"epochs": 20}
    )
    assert sorted(texts.labels) == ["b", "o", "r"]
    assert {label for label, _ in texts.predict("red round", k=2)} == {"o", "r"}
    scores = texts.evaluate(given[:4], labels[:4])
    assert scores["precision_at_1"] == 1.0


def test_a_classifier_of_fasttext_predicts_as_fasttext_does(tmp_path):
    fasttext = pytest.importorskip("fasttext")
    lines = ["__label__yes a good film", "__label__no a bad film"] * 20
    (tmp_path / "texts.txt").write_text("\n".join(lines) + "\n")
    peer = fasttext.train_supervised(str(tmp_path / "texts.txt"), dim=4, epoch=20, verbose=0)
    peer.save_model(str(tmp_path / "model.bin"))
    texts = lexrow.load(tmp_path / "model.bin")
    assert isinstance(texts, Texts)
    assert texts.predict(["good", "bad"]) == ["yes", "no"]
    ((chance, label),) = peer.f.predict("good\n", 1, 0.0, "strict")
    assert texts.predict("good", k=1) == [(label.removeprefix("__label__"), pytest.approx(chance))]


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        ([], [], "texts has no text"),
        (["a", "b"], ["x"], "labels is too short"),
        (["a"], ["x", "y"], "texts is too short"),
        ("text", ["x"], "texts is str; give a list of texts"),
        (["a", 3], ["x", "y"], r"texts\[1\] is int"),
        (["a", "b"], ["x", None], r"labels\[1\] is no label"),
        (["a", "b"], ["x", float("nan")], r"labels\[1\] is no label"),
        (["a", "b"], ["x", pd.NA], r"labels\[1\] is no label"),
        (["a", "b"], ["x", []], r"^labels\[1\] is empty; give each text a label"),
        (["a", "b"], np.eye(2), "^labels is a matrix of numbers; give the label of each text"),
        (["a", "b"], None, r"^texts\[0\]: has no label; give lines such as `__label__good a fine"),
        (pd.DataFrame({"t": ["a"]}), ["x"], "^texts is a table; give one of its columns, .*: t"),
    ],
)
def test_bad_input(texts, labels, message):
    with pytest.raises(ValueError, match=message):
        lexrow.train_classifier(texts, labels)


def test_a_column_of_labels_and_columns_of_pyarrow(trained, tmp_path):
    columns = {"text": ["a", "b"], "label": np.array([[1], [0]])}
    _write_labelled(Run(tmp_path), columns)
    assert (tmp_path / "texts.csv").read_text().split() == ["text,label", "a,1", "b,0"]
    asked = pa.array(["good", "bad"]), pa.array(["yes", "no"])
    assert trained.evaluate(*asked)["accuracy"] == 1


@pytest.mark.parametrize(
    ("labels", "weights", "message"),
    [
        (["x", "y"], [1], "^weights is too short"),
        (["x", "y"], [1, -1], r"^weights\[1\]=-1: give a number from 0 to 1,000,000$"),
        (["x", "y"], [float("nan"), 1], r"^weights\[0\]=nan: give a number"),
        (["x", "y"], [1, None], r"^weights\[1\]=None: give a number"),
        (None, [1, 1], "^weights are given without labels"),
    ],
)
def test_bad_weights(labels, weights, message):
    with pytest.raises(ValueError, match=message):
        lexrow.train_classifier(["a", "b"], labels, weights=weights)


def test_short_texts_may_have_many_labels(tmp_path):
    labels = [[str(label) for label in range(20)]] * 40
    path = _write_labelled(Run(tmp_path), {"text": ["a"] * 40, "label": labels})
    assert reading.recognize_file(path).format == "text"


def test_bad_questions(trained):
    with pytest.raises(ValueError, match="k=0: ask for at least one label"):
        trained.predict("good", k=0)
    with pytest.raises(ValueError, match=r"texts\[1\] is float"):
        trained.predict(["good", 1.0])
    with pytest.raises(FileNotFoundError, match="^texts=no-such.txt: no such file"):
        trained.evaluate("no-such.txt")
    with pytest.raises(AttributeError, match="^Texts has no attribute 'test'; use texts.evaluate"):
        _ = trained.test
    with pytest.raises(ValueError, match="1 texts and 2 labels"):
        trained.evaluate(["good"], ["yes", "no"])
    with pytest.raises(ValueError, match="no run of task=classify"):
        Texts.load(".")


def test_exports(trained, tmp_path):
    trained.export(tmp_path / "model.bin")
    again = lexrow.load(tmp_path / "model.bin")
    assert again.predict(["good", "bad"]) == ["yes", "no"]
    trained.export(tmp_path / "words.txt", "word2vec")
    assert "good" in lexrow.load(tmp_path / "words.txt")
    with pytest.raises(ValueError, match="^format=faiss: no format of task=classify; choose from"):
        trained.export(tmp_path / "index", "faiss")
    with pytest.raises(ValueError, match="^sif means nothing to format=fasttext"):
        trained.export(tmp_path / "other", sif=1.0)
    with pytest.raises(ValueError, match="this is a file of fastText"):
        again.export(tmp_path / "third")
    assert not (tmp_path / "other").exists()


def test_tuning_scores_on_the_heldout_texts(tmp_path, monkeypatch):
    def train(run, task, corpus, settings, *_):
        given = [(run.path / name).read_text() for name in ("texts.csv", "heldout.csv")]
        assert (task, settings["heldout"]) == ("classify", str(run.path / "heldout.csv"))
        assert ["known,c" in text for text in given] == [False, True]
        raise RunError("trained")

    monkeypatch.setattr(Run, "train", train)
    with pytest.raises(RunError, match="^trained$"):
        Texts.tune(["a", "b"], ["c", "d"], heldout=(["known"], ["c"]), workdir=tmp_path)


@pytest.mark.slow
def test_tuning(tmp_path):
    given = ["a good film", "a bad film", "a plain film"] * 40
    labels = ["yes", "no", "so"] * 40
    path, heldout = tmp_path / "run", (["good", "bad", "?"], ["yes", "no", "so"])
    found = Texts.tune(given, labels, 90, workdir=path, heldout=heldout, tune="loss", **FAST)
    assert [trial["loss"] for trial in found.trials] == ["softmax", "one_vs_all"]
    assert all(0 < trial["score"] < 1 and trial["seconds"] > 0 for trial in found.trials)
    assert found.predict(["good", "plain"]) == ["yes", "so"]
    again = Texts.tune(given, labels, 90, workdir=path, heldout=heldout, tune="loss", **FAST)
    assert again.trials == found.trials == lexrow.load(path).trials


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"seconds": 0}, "seconds=0: give a time to search"),
        ({"bytes": -1}, "bytes=-1: give a size of the file"),
        ({"tune_seconds": 5}, "tune_seconds: give seconds and bytes instead"),
        ({"labels": ["x"]}, "labels is too short"),
        ({"labels": ["x", "x"]}, "every text to train on has the label 'x'"),
        ({"heldout": ["a text"]}, "heldout: give a tuple of a list of texts and of one of labels"),
        ({"heldout": (["a"], ["x", "y"])}, "texts is too short"),
        ({"labels": ["x"], "heldout": (["a"], ["x"])}, "labels is too short"),
        ({"labels": ["x", "x"], "heldout": (["a"], ["x"])}, "every text to train on has the label"),
        ({"tune": "rate"}, "tune=rate: not one of learning_rate"),
        ({"dimm": 3, "heldout": (["a"], ["x"])}, "^'dimm' is no setting; did you mean dim"),
        ({"seconds": 1e9}, "^seconds=1000000000.0: give at most"),
        ({"bytes": 2**41}, "^bytes=2199023255552: give at most"),
    ],
)
def test_bad_tuning(values, message, tmp_path):
    given = {"texts": ["a", "b"], "labels": ["x", "y"], "heldout_share": 0.5, **values}
    with pytest.raises(ValueError, match=message):
        Texts.tune(**given, workdir=tmp_path / "run")
    assert not [*tmp_path.rglob("*.csv*")]


def test_an_interrupted_search(tmp_path, monkeypatch):
    def stop(*_):
        """Stop as a search does after Ctrl-C."""
        raise StoppedError("stopped as asked")

    monkeypatch.setattr(tuning, "_search", stop)
    with pytest.raises(KeyboardInterrupt, match="the search is kept; the same call with workdir="):
        Texts.tune(["a", "b"], ["x", "y"], workdir=tmp_path / "run")
