"""Scores that are computed beside the steps."""

from __future__ import annotations

import dataclasses
import logging
import threading

import pytest

from app.errors import RunError, UsageError
from app.training import metrics as run_metrics
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


def test_what_cannot_be_read_is_told_once_and_the_run_goes_on(tmp_path, caplog):
    def watch():
        raise UsageError("cannot read pairs.tsv")

    run = Run(tmp_path)
    run.job = dataclasses.replace(run.job, watch=watch)
    with caplog.at_level(logging.WARNING, logger="absl"):
        assert run.train(epochs=3)
    assert caplog.messages == ["no scores from epoch 1 on: cannot read pairs.tsv"]
    assert run.steps() == [30]


@pytest.mark.parametrize(("last", "saved"), [(False, 20), (True, 30)])
def test_scores_that_cannot_be_written_do_not_lose_the_run(tmp_path, monkeypatch, last, saved):
    """Where scores are ready at the end of an epoch, or only after the last step."""
    run = Run(tmp_path / "run")
    take, write = SideScores.take, run_metrics.Metrics.write

    def take_at(scores, waits=False):
        return take(scores, waits=True) if waits or not last else None

    def full(metrics, step, values):
        if "score" in values:
            raise RunError("cannot write metrics.jsonl: No space left on device")
        write(metrics, step, values)

    monkeypatch.setattr(SideScores, "take", take_at)
    monkeypatch.setattr(run_metrics.Metrics, "write", full)
    run.job = dataclasses.replace(run.job, watch=lambda: lambda: {"score": 1.0})
    with pytest.raises(RunError, match="No space left"):
        run.train(epochs=3, log_seconds=1000.0)
    assert run.steps() == [saved]
    monkeypatch.undo()
    whole = Run(tmp_path / "whole")
    assert run.train(epochs=3) and whole.train(epochs=3)
    assert run.state() == whole.state()


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
