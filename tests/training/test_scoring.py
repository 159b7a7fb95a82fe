"""A run is saved before it is scored: a stop, a kill or an error meanwhile loses nothing."""

from __future__ import annotations

import dataclasses
import os
import signal
import time

import pytest

from app.checkpoints.checkpoint import newest_position
from app.errors import RunError
from app.settings import RunConfig
from app.training import loop
from app.training.job import Evaluator
from app.training.runner import Runner
from tests.training.test_loop import Run
from tests.training.test_patience import rows_kept

SCORES = {1: 1.0, 2: 3.0, 3: 2.0, 4: 4.0}  # by epoch
COLUMNS = ("step", "epoch", "loss", "learning_rate", "words", "score")


class Killed(BaseException):
    """Stands for a signal that no process survives."""


def scored(run, during=lambda epoch, check: None):
    """The run with `SCORES`, and what happens while they are computed."""

    def scores(check):
        position = newest_position(run.place.checkpoints)
        assert position.unscored
        during(position.epoch, check)
        return {"score": SCORES[position.epoch]}

    run.job = dataclasses.replace(run.job, evaluator=Evaluator(scores))
    return run


def interrupted(number):
    """Sends a signal while epoch 2 or 4 is scored, and goes on until that is noticed."""

    def during(epoch, check):
        if epoch in (2, 4):
            os.kill(os.getpid(), number)
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                time.sleep(0.01)
                check()

    return during


def killed(epoch, check):
    if epoch in (2, 4):
        raise Killed


def columns(run):
    return [[row.get(name) for name in COLUMNS] for row in run.rows()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Runs that nothing disturbed, by --patience."""
    runs = {}
    for patience in (0, 9):
        runs[patience] = scored(Run(tmp_path_factory.mktemp("whole")))
        assert runs[patience].train(epochs=4, patience=patience)
    return runs


@pytest.mark.parametrize("patience", [0, 9])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, None])
def test_a_run_that_ends_while_scoring_goes_on_exactly(tmp_path, whole, patience, number):
    for epoch in (2, 4):
        during = interrupted(number) if number else killed
        run = scored(Run(tmp_path), during)
        if epoch == 4:  # what was not scored is scored first
            run = scored(Run(tmp_path), lambda at, check, act=during: at == 4 and act(at, check))
        if number:
            assert not run.train(epochs=4, patience=patience)
        else:
            with pytest.raises(Killed):
                run.train(epochs=4, patience=patience)
        at = newest_position(run.place.checkpoints)
        assert (at.step, at.epoch, at.batch, at.unscored) == (10 * epoch, epoch, 0, True)
    run = scored(Run(tmp_path))
    assert run.train(epochs=4, patience=patience)
    assert run.asked == []  # only the last epoch was left to score
    assert columns(run) == columns(whole[patience])
    assert run.state() == whole[patience].state()
    assert not newest_position(run.place.checkpoints).unscored
    if patience:
        kept = [rows_kept(each.place.best) for each in (run, whole[patience])]
        assert kept[0][1] == kept[1][1] == 40


def test_other_processes_stop_with_the_chief_that_stops_while_scoring(tmp_path):
    class Worker(Runner):
        chief = False

        def broadcast(self, number):
            return float("nan")  # of a chief without scores

    asked = []
    run = Run(tmp_path)
    run.job = dataclasses.replace(
        run.job, evaluator=Evaluator(lambda check: asked.append(1) or {"score": 1.0})
    )
    assert not loop.train(run.job, RunConfig(epochs=3, patience=2), run.place, Worker())
    assert asked == [1]


def test_the_chief_goes_on_to_the_stop_that_all_have_agreed_on(tmp_path):
    """As with workers in step, which stop some calls after a signal."""

    class Late(Runner):
        left = 3

        def is_stopping(self, asked):
            self.left -= asked
            return not self.left

    run = scored(Run(tmp_path), interrupted(signal.SIGTERM))
    assert not run.train(runner=Late(), epochs=4)
    at = newest_position(run.place.checkpoints)
    assert (at.step, at.epoch, at.batch, at.unscored) == (24, 2, 2, False)


def test_metrics_that_cannot_be_written_do_not_lose_the_run(tmp_path):
    def spoil(epoch, batch):
        if (epoch, batch) == (1, 2):
            run.place.metrics.unlink()
            run.place.metrics.mkdir()

    run = Run(tmp_path, during=spoil)
    with pytest.raises(RunError, match="^cannot write .*metrics.jsonl: Is a directory; "):
        run.train()
    assert run.steps() == [16]
    run.place.metrics.rmdir()
    whole = Run(tmp_path / "whole")
    whole.train()
    again = Run(tmp_path)
    assert again.train() and again.state() == whole.state()
