import dataclasses
import errno
import json
import os
import signal
import types

import numpy as np
import pytest
import tensorflow as tf

from app.assembly.learning import schedule_factor
from app.checkpoints import table_checkpoints, workdir
from app.checkpoints.checkpoint import is_finished, newest_position
from app.checkpoints.workdir import Workdir
from app.errors import RunError
from app.optimizers.adagrad import adagrad
from app.settings import RunConfig
from app.system.python_functions import call_python
from app.tables.base import TableSpec
from app.tables.device import DeviceTable
from app.training import loop
from app.training.job import Evaluator, Job, PlacedTables, TrainingData
from app.training.runner import Runner

STEPS = 2  # of a call


class Model:
    """Draws the rows that a batch names towards a number that the step draws."""

    def tables(self):
        return {"input": TableSpec(10, 4, tf.zeros)}

    def lookups(self, batch):
        return {"input": tf.reshape(batch.data, [-1])}

    def loss(self, batch, rows):
        target = tf.random.stateless_uniform([], batch.seed)
        values_ND = tf.gather(rows["input"].values_UD, rows["input"].inverse_N)
        return tf.reduce_sum(tf.square(values_ND - target)), tf.cast(tf.size(values_ND), tf.float32)


class Run:
    """A run on `length` batches an epoch; `asked` for are (epochs, first batch)."""

    def __init__(self, folder, length=5, expected=5, rate=0.1, words=100, during=lambda *_: None):
        self.place = Workdir(folder)
        self.asked, self.during, self.length = [], during, length
        self.table = DeviceTable(10, 4, tf.zeros, slots=adagrad(0.1).slots)
        self.job = Job(
            model=Model(),
            placed=PlacedTables({"input": self.table}, "CPU:0"),
            optimizer=adagrad(0.1),
            learning_rate=lambda done: rate * schedule_factor("linear", 0.0, done),
            data=TrainingData(self.batches, expected, STEPS, words),
        )

    def batches(self, epochs, first):
        self.asked.append((epochs, first))
        for epoch in epochs:
            for batch in range(first if epoch == epochs.start else 0, self.length):
                self.during(epoch, batch)
                draw = np.random.default_rng([epoch, batch])
                yield epoch, tf.constant(draw.integers(0, 10, (STEPS, 2, 3)), tf.int32)

    def train(self, epochs=2, runner=None, **settings):
        settings = {"log_seconds": 0.0, "workdir": str(self.place.path), **settings}
        return loop.train(self.job, RunConfig(epochs=epochs, **settings), self.place, runner)

    def state(self):
        slot = self.table.slots["accumulator"].values.numpy().tobytes()
        return self.table.values.numpy().tobytes(), slot

    def rows(self):
        return [json.loads(line) for line in self.place.metrics.read_text().splitlines()]

    def steps(self):
        return sorted(int(path.name[5:]) for path in self.place.checkpoints.iterdir())


def test_every_batch_of_every_epoch(tmp_path):
    run = Run(tmp_path)
    assert run.train()
    assert run.asked == [(range(2), 0)]
    rows = run.rows()
    assert [row["step"] for row in rows] == list(range(2, 21, 2))
    assert [row["epoch"] for row in rows] == pytest.approx([i / 5 for i in range(1, 11)])
    assert [row["words"] for row in rows] == list(range(20, 201, 20))
    assert run.steps() == [20]


@pytest.mark.parametrize("expected", [5, 2, 10])
def test_the_rate_falls_to_the_end(tmp_path, expected):
    run = Run(tmp_path, expected=expected)
    run.train()
    rates = [row["learning_rate"] for row in run.rows()]
    # In the first epoch as far as was expected; then it is known how long one is.
    first = [0.1 * (1 - min(batch / expected, 1) / 2) for batch in range(5)]
    assert rates[:5] == pytest.approx(first)
    assert rates[5:] == pytest.approx([0.05, 0.04, 0.03, 0.02, 0.01])


def test_the_rate_never_falls_to_nothing(tmp_path):
    run = Run(tmp_path, length=4, expected=2)
    run.train(epochs=1)
    assert [row["learning_rate"] for row in run.rows()] == pytest.approx([0.1, 0.05, 1e-5, 1e-5])


def test_checkpoints_as_time_goes(tmp_path):
    run = Run(tmp_path)
    run.train(checkpoint_minutes=0.0, keep_checkpoints=4)
    assert run.steps() == [14, 16, 18, 20]
    at = newest_position(run.place.checkpoints)
    assert (at.step, at.epoch, at.batch, at.batches, at.words) == (20, 2, 0, 5, 200)
    (run.place.path / "none").mkdir()
    hourly = Run(tmp_path / "none")
    hourly.train(checkpoint_minutes=60.0)
    assert hourly.steps() == [20]


class Apart(Runner):
    """Replicas that are equal after every third call and after each epoch."""

    waiting, finished = 0, 0

    @property
    def is_synchronized(self):
        return self.waiting % 3 == 0

    def run_steps(self, *given):
        self.waiting += 1
        return super().run_steps(*given)

    def finish_epoch(self):
        self.waiting, self.finished = 0, self.finished + 1


def test_checkpoints_wait_for_an_exchange(tmp_path):
    run, runner = Run(tmp_path), Apart()
    run.train(runner=runner, checkpoint_minutes=0.0, keep_checkpoints=9)
    # Of two epochs of five calls of two steps: at their ends, and after three calls of each.
    assert run.steps() == [0, 6, 10, 16, 20]
    assert runner.finished == 2


def spoiling(run):
    """Makes the rows of the run's table NaN before its fourth batch."""

    def spoil(epoch, batch):
        if (epoch, batch) == (0, 3):
            run.table.values.assign(run.table.values * float("nan"))

    return spoil


@pytest.mark.parametrize(("log_seconds", "window"), [(0.0, "6 and 8"), (1e9, "0 and 20")])
def test_a_loss_that_is_not_finite_stops_the_run(tmp_path, log_seconds, window):
    run = Run(tmp_path)
    run.during = spoiling(run)
    message = f"^the loss is not finite between steps {window}; lower --learning_rate "
    with pytest.raises(RunError, match=message):
        run.train(log_seconds=log_seconds)
    assert not run.place.checkpoints.exists()


def test_rows_that_are_not_finite_are_not_saved(tmp_path):
    run = Run(tmp_path)
    run.during = spoiling(run)
    between = "between the last checkpoint and step 6"
    with pytest.raises(RunError, match=f"^a row of table 'input' is not finite {between}; lower"):
        run.train(log_seconds=1e9, checkpoint_minutes=0.0)
    assert run.steps() == [0, 2, 4]
    assert Run(tmp_path).train()


def test_a_disk_without_room_for_a_checkpoint_is_found_before_training(tmp_path, monkeypatch):
    bytes_ = 10 * (4 + 4) * 4 + 2**20  # of the rows and of their slot, and of small files
    free = types.SimpleNamespace(free=bytes_ - 1)
    monkeypatch.setattr(table_checkpoints.shutil, "disk_usage", lambda path: free)
    run = Run(tmp_path / "new" / "run")
    message = (
        f"/checkpoints: a checkpoint takes {bytes_:,} bytes, and the disk has {free.free:,}, so "
    )
    with pytest.raises(RunError, match=message):
        run.train()
    assert not run.asked
    free.free = bytes_
    assert run.train()
    free.free = 0
    assert run.train()  # a finished run saves nothing


def test_a_checkpoint_that_fails_says_where_the_next_run_begins(tmp_path, monkeypatch):
    def full(table, folder):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    run, write = Run(tmp_path), DeviceTable.snapshot
    monkeypatch.setattr(DeviceTable, "snapshot", full)
    start = "on device; free the disk or choose another folder; with this --workdir, a run goes on"
    with pytest.raises(RunError, match=f"{start} from the start, as none is saved yet$"):
        run.train()
    monkeypatch.setattr(DeviceTable, "snapshot", write)
    run.train(epochs=1)
    monkeypatch.setattr(DeviceTable, "snapshot", full)
    with pytest.raises(RunError, match=f"{start} from step 10$"):
        Run(tmp_path).train(epochs=2)
    monkeypatch.setattr(DeviceTable, "snapshot", write)
    assert Run(tmp_path).train(epochs=2)


def test_input_that_fails_is_told_and_saves_nothing(tmp_path):
    def fail(epoch, batch):
        if (epoch, batch) == (1, 2):
            raise RunError("the corpus is damaged")

    run = Run(tmp_path, during=fail)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(RunError, match="^the corpus is damaged$"):
        run.train()
    assert signal.getsignal(signal.SIGTERM) == before
    assert not run.place.checkpoints.exists()
    assert len(run.rows()) == 7


def test_an_epoch_without_a_batch(tmp_path):
    run = Run(tmp_path, length=0)
    assert run.train()
    assert run.steps() == [0] and not run.place.metrics.exists()


def test_values_are_read_at_intervals_only(tmp_path):
    run = Run(tmp_path)
    run.train(log_seconds=1e9)
    assert [row["step"] for row in run.rows()] == [20]


def test_what_is_called_after_every_epoch(tmp_path):
    run = Run(tmp_path)
    ended = []

    def seven(check):
        ended.append(newest_position(run.place.checkpoints))
        return {"score": 7.0}

    run.job = dataclasses.replace(
        run.job, evaluator=Evaluator(seven), loss_metrics=lambda loss: {"twice": 2 * loss}
    )
    run.train(log_seconds=1e9)
    # The epoch is saved before it is scored, and its score after it.
    assert [(at.step, at.epoch, at.unscored) for at in ended] == [(10, 1, True), (20, 2, True)]
    assert not newest_position(run.place.checkpoints).unscored
    first, score, second, again = run.rows()
    # What has come until then is reported first.
    assert (first["step"], first["epoch"]) == (10, 1)
    assert score == {"step": 10, "epoch": 1, "score": 7.0}
    assert (second["step"], again["step"], again["epoch"]) == (20, 20, 2)
    assert all(row["twice"] == 2 * row["loss"] for row in (first, second))
    # A finished run is not scored again.
    more = Run(tmp_path)
    more.job = run.job
    more.train(log_seconds=1e9)
    assert len(ended) == 2


def test_what_a_table_raises_within_a_step_ends_the_run(tmp_path):
    def full():
        raise RunError("cannot write rows: the disk is full; free it")

    run = Run(tmp_path)
    run.table.assign = lambda ids_U, rows_UD: call_python(full, [])
    with pytest.raises(RunError, match="^cannot write rows: the disk is full; free it$"):
        run.train()


def test_a_run_that_cannot_go_on_changes_nothing(tmp_path):
    Run(tmp_path).train(epochs=1)
    workdir.write_flags(tmp_path / "flags.cfg", {"epochs": 1})

    def content():
        return {p: p.is_file() and p.read_bytes() for p in sorted(tmp_path.rglob("*"))}

    before, run = content(), Run(tmp_path)
    run.table = DeviceTable(11, 4, tf.zeros, slots=run.job.optimizer.slots)
    recorded = []
    run.job = dataclasses.replace(
        run.job,
        placed=PlacedTables({"input": run.table}, "CPU:0"),
        data=dataclasses.replace(run.job.data, record=lambda: recorded.append(run.table)),
    )
    with pytest.raises(RunError, match="input/values has shape"):
        loop.train(run.job, RunConfig(epochs=2), run.place, flags={"epochs": 2})
    assert content() == before and not recorded
    again = Run(tmp_path)
    assert loop.train(again.job, RunConfig(epochs=2), again.place, flags={"epochs": 2})
    assert workdir.read_flags(tmp_path / "flags.cfg") == {"epochs": "2"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("when", [(0, 0), (0, 3), (1, 0), (1, 4)])
def test_a_stop_saves_and_a_resumed_run_ends_the_same(tmp_path, number, when):
    whole = Run(tmp_path / "whole")
    whole.train()

    def stop(*place):
        if place == when:
            os.kill(os.getpid(), number)

    first = Run(tmp_path / "run", during=stop)
    assert not first.train()
    second = Run(tmp_path / "run")
    assert second.train()
    assert second.asked == [(range(when[0], 2), when[1])]
    assert second.state() == whole.state()
    for name in ("step", "epoch", "loss", "learning_rate", "words"):
        assert [row[name] for row in second.rows()] == [row[name] for row in whole.rows()]


def test_more_epochs_and_longer_text(tmp_path):
    Run(tmp_path).train()
    same = Run(tmp_path)
    assert same.train() and same.asked == []
    longer = Run(tmp_path, length=10, expected=9, words=200)
    longer.train(epochs=3)
    assert longer.asked == [(range(2, 3), 0)]
    rows = [row for row in longer.rows() if row["step"] > 20]
    rates = [0.1 * (1 - (2 + min(batch / 9, 1)) / 3) for batch in range(9)]
    assert [row["learning_rate"] for row in rows][:9] == pytest.approx(rates)
    assert rows[-1]["words"] == 400


def test_whether_a_workdir_is_finished(tmp_path):
    place = Workdir(tmp_path)
    assert not is_finished(place)
    workdir.write_flags(place.flags, {"epochs": 2})
    assert not is_finished(place)
    run = Run(tmp_path, during=lambda *at: at == (1, 2) and os.kill(os.getpid(), signal.SIGTERM))
    run.train()
    assert not is_finished(place)
    Run(tmp_path).train()
    assert is_finished(place)
    assert is_finished(place, RunConfig(epochs=2))
    # Its flags are still the old ones when an extended run begins.
    assert not is_finished(place, RunConfig(epochs=3))
    assert not is_finished(place, RunConfig(epochs=2, patience=1))
    workdir.write_flags(place.flags, {"epochs": 3})
    assert not is_finished(place)


def test_who_goes_on_within_an_epoch_with_other_micro_batches_is_told(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(loop.logging, "warning", lambda text, *values: told.append(text % values))

    def stop(epoch, batch):
        if batch == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    assert not Run(tmp_path, during=stop).train()
    again = Run(tmp_path)
    again.job = dataclasses.replace(
        again.job, placed=PlacedTables({"input": again.table}, "CPU:0", micro_batches=2)
    )
    again.train()
    assert told == [
        "this epoch was begun with 1 micro-batches a step, and goes on with 2: some rows of it "
        "come twice or not at all; the next epochs are complete"
    ]
