"""Scores that are computed beside the steps."""

from __future__ import annotations

import dataclasses
import logging
import threading

import pytest

from app.errors import RunError
from app.training.side_scores import SideScores
from tests.training.test_loop import Run


def test_one_epoch_at_a_time_and_not_too_often():
    scores, go, asked = SideScores(), threading.Event(), []

    def read(epoch):
        asked.append(epoch)
        return lambda: go.wait(60) and {"score": 1.0}

    scores.start(10, 1, lambda: read(1))
    assert scores.take() is None
    scores.start(20, 2, lambda: read(2))  # the first is not ready
    go.set()
    assert scores.take(waits=True) == (10, {"epoch": 1, "score": 1.0})
    scores.start(30, 3, lambda: read(3))  # it took no time, but for that of a thread's start
    scores._due = 0.0
    scores.start(40, 4, lambda: read(4))
    assert scores.take(waits=True)[1]["epoch"] == asked[-1]
    scores._due = float("inf")
    scores.start(50, 5, lambda: read(5))
    assert scores.take(waits=True) is None
    assert 2 not in asked and 5 not in asked
    scores.close()


def test_a_failure_is_a_warning(caplog):
    def fail():
        raise RunError("a file is gone")

    scores = SideScores()
    scores.start(10, 1, lambda: fail)
    with caplog.at_level(logging.WARNING, logger="absl"):
        assert scores.take(waits=True) is None
    assert caplog.messages == ["no scores after epoch 1: a file is gone"]
    scores.close()


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_run_is_scored_after_each_epoch_but_the_last(tmp_path, epochs):
    whole = Run(tmp_path / "whole")
    assert whole.train(epochs=epochs)
    run, rows = Run(tmp_path / "scored"), []

    def watch():
        rows.append(run.table.values.numpy())
        return lambda: {"score": float(len(rows))}

    run.job = dataclasses.replace(run.job, watch=watch)
    assert run.train(epochs=epochs)
    assert run.state() == whole.state()  # the steps are the same
    scored = [row for row in run.rows() if "score" in row]
    assert scored == [{"step": 10, "epoch": 1, "score": 1.0}][: epochs - 1]
    assert len(rows) == epochs - 1
