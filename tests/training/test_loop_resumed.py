from __future__ import annotations

import dataclasses
import os
import signal

import pytest
import tensorflow as tf

from app.checkpoints import workdir
from app.checkpoints.checkpoint import is_finished
from app.checkpoints.workdir import Workdir
from app.errors import RunError
from app.settings import RunConfig
from app.tables.device import DeviceTable
from app.training import loop
from app.training.job import PlacedTables
from tests.training.test_loop import Run


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
    with pytest.raises(RunError, match="holds table 'input' with shape"):
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
