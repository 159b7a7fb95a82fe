"""Pictures of words and of runs, by matplotlib."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from matplotlib import pyplot

import app as lexrow
from app.tasks import pictures
from app.trained import Result
from app.types import WordVectors
from app.words import Words


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    pyplot.close("all")


def points_of(axes):
    return np.asarray(axes.collections[0].get_offsets())


def test_rows_are_drawn_by_their_main_components():
    rows_ND = np.random.default_rng(1).normal(size=(7, 5)).astype(np.float32)
    axes = pictures.plot_rows(list("abcdef") + ["$x$"], rows_ND)
    centered_ND = rows_ND - rows_ND.mean(axis=0)
    values_D, vectors_DD = np.linalg.eigh(centered_ND.T @ centered_ND)
    expected_N2 = centered_ND @ vectors_DD[:, :-3:-1]
    np.testing.assert_allclose(np.abs(points_of(axes)), np.abs(expected_N2), atol=1e-5)
    share = values_D[-1] / values_D.sum()
    assert axes.get_xlabel() == f"component 1 ({share:.0%} of the variance)"
    axes.figure.canvas.draw()  # a formula that is none would fail here


@pytest.mark.parametrize("shape", [(2, 1), (2, 3), (3, 3)])
def test_few_rows_and_few_columns(shape):
    axes = pictures.plot_rows("abc"[: shape[0]], np.ones(shape, np.float32))
    np.testing.assert_allclose(points_of(axes), np.zeros((shape[0], 2)), atol=1e-6)


def test_words_are_drawn_in_given_axes():
    words = Words(WordVectors(["a", "b", "c"], np.eye(3, dtype=np.float32)))
    axes = pyplot.figure().subplots()
    assert words.plot(["a", "c"], ax=axes) is axes
    assert [text.get_text() for text in axes.texts] == ["a", "c"]
    with pytest.raises(KeyError, match="'d': unknown word"):
        words.plot(["a", "d"])
    for wrong in ("ab", ["a"]):
        with pytest.raises(ValueError, match="give a list of at least two words"):
            words.plot(wrong)
    with pytest.raises(ValueError, match="its training is not known"):
        words.report()


def test_a_report_has_the_curves_of_a_run(tmp_path):
    lines = [
        {"step": 4, "epoch": 1.0, "loss": 3.0, "learning_rate": 0.2, "pairs_per_second": 9.0},
        {"step": 4, "epoch": 1, "recall@10": 0.25, "heldout_loss": 3.5},
        {"step": 8, "epoch": 2, "heldout_perplexity": 9.5},
        {"step": 8, "epoch": 2.0, "loss": 2.0, "learning_rate": 0.1, "pairs_per_second": 7.0},
    ]
    path = tmp_path / "metrics.jsonl"
    damaged = "[" * 100_000 + '\n3\n{"step": 9, "loss": "x"}\n{"step": 9, "lo'
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + damaged)
    curves = {
        (axes.get_title(), line.get_label()): (list(line.get_xdata()), list(line.get_ydata()))
        for axes in pictures.report(path, "a run").axes
        for line in axes.lines
    }
    assert curves == {
        ("loss", "train"): ([4, 8], [3.0, 2.0]),
        ("loss", "heldout"): ([4], [3.5]),
        ("perplexity", "heldout"): ([8], [9.5]),
        ("scores", "recall@10"): ([4], [0.25]),
        ("speed", "pairs per second"): ([4, 8], [9.0, 7.0]),
        ("learning rate", "learning rate"): ([4, 8], [0.2, 0.1]),
    }
    path.write_text("")
    with pytest.raises(ValueError, match="metrics.jsonl has no metrics of a run"):
        pictures.report(path, "")


def test_every_result_has_a_report():
    kinds = (lexrow.Words, lexrow.Texts, lexrow.Items, lexrow.Language)
    assert {kind.report for kind in kinds} == {Result.report}


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r'not installed; pip install "lexrow\[plot\]"$'):
        pictures.plot_rows(["a", "b"], np.ones((2, 2), np.float32))
