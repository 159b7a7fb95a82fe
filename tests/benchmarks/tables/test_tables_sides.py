from __future__ import annotations

import itertools
import json
import sys
import time

import numpy as np
import pytest

from app.benchmarks.tables import tables_measure, tables_sides, tables_torch
from app.benchmarks.tables.tables_case import STEPS, Job
from app.benchmarks.tables.tables_measure import LIMIT, Side, make_case
from app.errors import RunError

CALLS = 4


def make_job(side="device", hot=None, optimizer="lazy_adam"):
    return Job(optimizer, side, hot, rows=300, dim=5, ids=40, steps=20, stage_steps=20)


def losses(tmp_path, *job):
    case = make_case(make_job(*job), CALLS, 3, str(tmp_path))
    side = tables_sides.SIDES[case.job.side](case)
    found = [float(loss) for loss in itertools.islice(side.calls, CALLS)]
    return np.array(found), side.values()


def test_ids_are_by_zipfs_law():
    job = make_job()._replace(rows=50, ids=2_000)
    ids = make_case(job, 5, 1, "").ids_CSN
    assert ids.shape == (5, STEPS, 2_000)
    expected = 1 / np.arange(1, 51) / np.sum(1 / np.arange(1, 51))
    found = np.bincount(ids.flatten(), minlength=50) / ids.size
    assert len(found) == 50
    assert (abs(found - expected) < 5 * np.sqrt(expected / ids.size)).all()


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["lazy_adam", "rowwise_adagrad"])
def test_every_side_trains_the_same(tmp_path, optimizer):
    expected, told = losses(tmp_path, "device", None, optimizer)
    assert (np.diff(expected) < 0).all() and told == {}
    for side, hot, error in (
        ("host", 10, 1e-6),
        ("disk", 10, 1e-6),
        ("dynamic", None, 1e-6),
        ("naive", None, 1e-5),
        ("bfloat16", None, 1e-2),
    ):
        found, told = losses(tmp_path, side, hot, optimizer)
        np.testing.assert_allclose(found, expected, rtol=error, err_msg=side)
        moves = {"stage_hit_rate", "staged_bytes", "stage_stall"}
        assert set(told) == (moves if side in ("host", "disk", "naive") else set())
        assert all(0 <= told[key] <= 1 for key in moves & set(told) - {"staged_bytes"})


def test_naive_moves_rows_and_state_there_and_back(tmp_path):
    _, told = losses(tmp_path, "naive", None, "rowwise_adagrad")
    ids_CSN = make_case(make_job(), CALLS, 3, "").ids_CSN
    distinct = np.mean([len(np.unique(ids)) for ids in ids_CSN.reshape(-1, 40)])
    assert told["staged_bytes"] == pytest.approx(2 * distinct * (5 + 1) * 4)
    assert told["stage_hit_rate"] == 0


def spec(tmp_path, job):
    return job._asdict() | {"seed": 3, "folder": str(tmp_path)}


def stand_in(losses, told=None, pause=0.0):
    """A side whose calls take a while and give these losses, the last one for ever."""

    def calls():
        for number in itertools.count():
            time.sleep(pause)
            yield losses[min(number, len(losses) - 1)]

    return lambda case: Side(calls(), lambda: told or {})


def test_a_side_returns_its_figures(tmp_path):
    side = stand_in([2.0, 1.0], {"staged_bytes": 7.0}, pause=0.01)
    values = tables_measure.measure({"device": side}, spec(tmp_path, make_job()))
    assert len(values["blocks_per_s"]) == 5 and values["staged_bytes"] == 7
    assert 0 < values["steps_per_s"] <= STEPS / 0.01
    assert 1 < values["rows_per_s"] / values["steps_per_s"] <= 40
    assert values["peak_bytes"] >= 0


@pytest.mark.parametrize("last", [2.0, float("nan")])
def test_a_side_that_does_not_train_has_no_speed(tmp_path, last):
    with pytest.raises(RunError, match="device: the loss went from 2.0 to .*, not down"):
        sides = {"device": stand_in([2.0, last])}
        tables_measure.measure(sides, spec(tmp_path, make_job()))


def test_without_torch_its_side_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    result = tmp_path / "result.json"
    job = spec(tmp_path, make_job("torch")) | {"result": str(result)}
    monkeypatch.setattr(sys, "argv", ["", json.dumps(job)])
    tables_torch.main()
    assert "torch" in json.loads(result.read_text())["left_out"]


def test_rows_of_every_side_start_the_same():
    case = make_case(make_job(), 1, 3, "")
    rows = tables_sides._initial(case)((300, 5)).numpy()
    assert abs(rows).max() <= LIMIT and rows.std() == pytest.approx(LIMIT / 3**0.5, rel=0.1)
