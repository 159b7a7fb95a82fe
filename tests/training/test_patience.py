"""Runs that end early, and the epoch that is kept of them."""

import dataclasses
import os
import signal
import time

import pytest

from app.checkpoints import workdir
from app.checkpoints.checkpoint import is_finished, newest_position
from app.errors import RunError, UsageError
from app.settings import RunConfig
from app.training import loop
from app.training.job import Evaluator
from app.training.run import check_flags
from app.training.runner import Runner
from tests.training.test_loop import Run


def watched(run, scores):
    """The run, with one of these scores after each epoch."""
    left = iter(scores)
    evaluator = Evaluator(lambda _: {"score": next(left)})
    run.job = dataclasses.replace(run.job, evaluator=evaluator)
    return run


def rows_kept(folder):
    (path,) = folder.iterdir()
    return int(path.name[5:])


def test_patience_ends_a_run_and_keeps_its_best_epoch(tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(loop.logging, "info", lambda text, *values: said.append(text % values))
    run = watched(Run(tmp_path), [1.0, 3.0, 2.0, 3.0, 9.0])
    assert run.train(epochs=5, patience=2)
    told = "--patience=2: stopped after epoch 4 of 5, as the last 2 did not score better; the rows"
    assert said[-1] == f"{told} of epoch 2 are kept"
    assert run.place.trained == run.place.best
    assert [path.name for path in run.place.best.iterdir()] == [f"step-{20:012d}"]
    assert [row["score"] for row in run.rows() if "score" in row] == [1, 3, 2, 3]
    assert run.steps() == [20, 30, 40]  # an epoch is saved before it is scored
    settings = {"task": "classify", "epochs": 5, "patience": 2}
    workdir.write_flags(run.place.flags, settings)
    assert is_finished(run.place)
    again = watched(Run(tmp_path), [])
    said.clear()
    assert again.train(**settings)
    assert not any(text.startswith("--patience=2: ") for text in said)
    ended = "--patience=2 ended this run after epoch 4: there is nothing to do"
    assert any(text.startswith(ended) for text in said)
    assert again.steps() == [20, 30, 40]
    more = watched(Run(tmp_path), [9.0])
    assert more.train(epochs=5, patience=3)
    assert [path.name for path in run.place.best.iterdir()] == [f"step-{50:012d}"]
    assert said[-1] == "--patience=3: the rows of epoch 5 are kept"


def test_without_patience_the_newest_epoch_counts(tmp_path):
    run = watched(Run(tmp_path), [2.0, 1.0])
    run.train(epochs=2, patience=5)
    assert run.place.trained == run.place.best
    run = watched(Run(tmp_path), [0.0])
    run.train(epochs=3)
    assert run.place.trained == run.place.checkpoints


def test_the_score_of_the_chief_decides_for_all(tmp_path):
    class Worker(Runner):
        chief = False
        scores = [1.0, 3.0, 2.0, 1.0, 9.0]

        def broadcast(self, number):
            return self.scores.pop(0)

    run = watched(Run(tmp_path), [5.0, 1.0, 1.0, 6.0, 7.0])
    assert loop.train(run.job, RunConfig(epochs=5, patience=2), run.place, Worker())
    assert Worker.scores == [9.0]
    assert not run.place.checkpoints.exists() and not run.place.best.exists()


def test_patience_needs_a_score(tmp_path):
    run = Run(tmp_path)
    with pytest.raises(UsageError, match=r"^--patience=2 needs scores .*; give --heldout=FILE"):
        check_flags(run.job, RunConfig(patience=2))


def test_an_exchange_must_come_within_an_epoch(tmp_path):
    run = Run(tmp_path)
    steps = run.job.data.expected_batches * run.job.data.steps_per_batch
    check_flags(run.job, RunConfig(sync_steps=steps))
    message = f"^--sync_steps={steps + 1}: an epoch has about {steps} steps, and its end is an"
    with pytest.raises(UsageError, match=message):
        check_flags(run.job, RunConfig(sync_steps=steps + 1))


# A run is saved before it is scored: a stop, a kill or an error meanwhile loses nothing.


SCORES = {1: 1.0, 2: 3.0, 3: 2.0, 4: 4.0}  # by epoch
COLUMNS = ("step", "epoch", "loss", "learning_rate", "words", "score")


class Killed(BaseException):
    """Stands for a signal that no process survives."""


def scored(run, during=lambda *_: None):
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


def scores_only(epoch, check):
    """Compute the scores, and do nothing else meanwhile."""


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
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, 0, -1])
def test_a_run_that_ends_while_scoring_goes_on_exactly(
    tmp_path, whole, patience, number, monkeypatch
):
    write = loop.Metrics.write

    def write_and_end(metrics, step, values):
        write(metrics, step, values)
        if (step, "score" in values) == (10 * epoch, True):
            raise Killed

    for epoch in (2, 4):
        monkeypatch.setattr(loop.Metrics, "write", write if number >= 0 else write_and_end)
        during = interrupted(number) if number > 0 else killed if number == 0 else scores_only
        run = scored(Run(tmp_path), during)
        if epoch == 4:  # what was not scored is scored first
            run = scored(Run(tmp_path), lambda at, check, act=during: at == 4 and act(at, check))
        if number > 0:
            assert not run.train(epochs=4, patience=patience)
        else:
            with pytest.raises(Killed):
                run.train(epochs=4, patience=patience)
        at = newest_position(run.place.checkpoints)
        assert (at.step, at.epoch, at.batch, at.unscored) == (10 * epoch, epoch, 0, True)
    monkeypatch.setattr(loop.Metrics, "write", write)
    run = scored(Run(tmp_path))
    assert run.train(epochs=4, patience=patience)
    assert run.asked == []  # only the last epoch was left to score
    assert columns(run) == columns(whole[patience])
    assert run.state() == whole[patience].state()
    assert not newest_position(run.place.checkpoints).unscored
    if patience:
        kept = [rows_kept(each.place.best) for each in (run, whole[patience])]
        assert kept == [40, 40]


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
