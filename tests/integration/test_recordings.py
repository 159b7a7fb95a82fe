"""What a run leaves for people to look at: metrics.jsonl, TensorBoard's scalars, profiles."""

from __future__ import annotations

import json

import pytest
import tensorflow as tf

from tests.integration.commands import done, logged, newest_step, train


@pytest.fixture(scope="module")
def rows(trained):
    return logged(trained)


def test_a_line_for_every_logged_step(trained, rows):
    steps = [row["step"] for row in rows]
    assert steps == list(range(2, newest_step(trained) + 1, 2))
    names = "step epoch loss learning_rate words_per_second input_wait words train_seconds"
    assert {tuple(row) for row in rows} == {(*names.split(), "seconds_left")}
    for name in ("epoch", "words", "train_seconds"):
        values = [row[name] for row in rows]
        assert values == sorted(values)
    assert rows[-1]["epoch"] == 2
    assert rows[-1]["words"] == 2 * json.loads((trained / "corpus.json").read_text())["words"]
    assert rows[-1]["loss"] < rows[0]["loss"]
    rates = [row["learning_rate"] for row in rows]
    assert rates[0] == 0.15 and rates == sorted(rates, reverse=True) and 0 < rates[-1] < 0.02
    assert all(0 <= row["input_wait"] <= 1 for row in rows)


def test_tensorboard_shows_the_same(trained, rows):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    # Tensors are sampled down unless the size guidance says to keep them all.
    events = accumulator.EventAccumulator(str(trained / "tensorboard"), {"tensors": 0})
    events.Reload()
    assert set(events.Tags()["tensors"]) == set(rows[0]) - {"step"}
    for name in ("loss", "learning_rate"):
        tensors = events.Tensors(name)
        found = [(event.step, float(tf.make_ndarray(event.tensor_proto))) for event in tensors]
        assert found == [(row["step"], pytest.approx(row[name], rel=1e-6)) for row in rows]


@pytest.mark.parametrize(("windows", "recorded"), [("4,10,14,16", 2), ("3,6", 1)])
def test_profiles_are_where_tensorboard_looks(tmp_path, corpus, windows, recorded):
    ended = done(tmp_path, *train(tmp_path / "run", corpus, f"--profile_steps={windows}"))
    profiles = list((tmp_path / "run/tensorboard").glob("plugins/profile/*/*.xplane.pb"))
    assert len(profiles) == recorded
    for profile in profiles:
        content = profile.read_bytes()
        assert all(name in content for name in (b"train", b"MatMul", b"update/", b"ahead"))
    told = [line for line in ended.err.splitlines() if line.startswith("profile of steps ")]
    assert len(told) == recorded
