"""Runs that end early, and the epoch that is kept of them."""

from __future__ import annotations

import dataclasses
import os
import signal

import numpy as np
import pytest
import tensorflow as tf

from app.checkpoints import workdir
from app.checkpoints.checkpoint import is_finished
from app.errors import UsageError
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
    return tf.train.load_checkpoint(str(path / "tables")), int(path.name[5:])


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


@pytest.mark.slow
def test_the_best_epoch_is_that_of_a_run_without_a_stop(tmp_path):
    scores = [1.0, 3.0, 2.0, 4.0, 1.0]
    whole = watched(Run(tmp_path / "whole"), scores)
    whole.train(epochs=5, patience=9)
    assert whole.place.trained == whole.place.best

    def stop(epoch, batch):
        if (epoch, batch) == (3, 2):
            os.kill(os.getpid(), signal.SIGTERM)

    first = watched(Run(tmp_path / "run", during=stop), scores)
    assert not first.train(epochs=5, patience=9)
    second = watched(Run(tmp_path / "run"), scores[3:])
    assert second.train(epochs=5, patience=9)
    kept = [rows_kept(run.place.best) for run in (whole, second)]
    assert kept[0][1] == kept[1][1] == 40
    name = next(name for name in kept[0][0].get_variable_to_shape_map() if "input" in name)
    np.testing.assert_array_equal(*(reader.get_tensor(name) for reader, _ in kept))


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
