"""What a run records of itself, and what lexrow profile says of it."""

import json
import shutil

import pytest
import tensorflow as tf

from app.checkpoints.workdir import read_flags
from app.training.metric_names import tag
from tests.integration.commands import done, fresh, logged, newest_step, refusal, refused, train


@pytest.fixture(scope="module")
def profiled(tmp_path_factory, corpus):
    workdir = tmp_path_factory.mktemp("profiled") / "run"
    done(workdir.parent, *train(workdir, corpus, "--profile_steps=4,30"))
    return workdir


def test_what_it_says_and_writes(tmp_path, profiled):
    ended = done(tmp_path, "app.profile", f"--workdir={profiled}", f"--json={tmp_path}/found.json")
    assert ended.err == ""
    first, step, verdict, kernels, pipeline, *_ = ended.out.splitlines()
    assert first.startswith("profile    ") and first.endswith(" calls of 2 steps")
    assert verdict.startswith("verdict    ") and kernels.startswith("kernels    ")
    assert pipeline.startswith("tf.data    the slowest stage")
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["trusted"] and found["steps_per_call"] == 2
    assert found["verdict"] in verdict and found["stage"]["label"] in pipeline
    assert len(found["operations"]) == 5
    assert f"{found['step_ms']:.3g} ms ({found['call_ms']:.3g} ms a call)" in step
    for change in found["changes"]:
        assert change["what"] in ended.out and change["speedup"] > 1


@pytest.mark.slow
def test_two_runs_beside_one_another(tmp_path, profiled):
    pytest.importorskip("matplotlib")
    argv = ("app.profile", f"--workdir={profiled}", f"--before={profiled}")
    ended = done(tmp_path, *argv, f"--plot={tmp_path}/o.png", f"--json={tmp_path}/o.json")
    assert ended.out.splitlines()[-1].endswith("; now 1.00 times as fast")
    assert (tmp_path / "o.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads((tmp_path / "o.json").read_text())
    assert found.pop("before") == found


@pytest.mark.slow
def test_few_calls_are_called_too_short(tmp_path, corpus):
    workdir = tmp_path / "run"
    done(tmp_path, *train(workdir, corpus, "--profile_steps=4,10"))
    ended = done(tmp_path, "app.profile", f"--workdir={workdir}", f"--json={tmp_path}/o.json")
    assert "too short to trust: record at least 14 steps" in ended.out
    assert json.loads((tmp_path / "o.json").read_text())["trusted"] is False


def test_a_truncated_profile(tmp_path, profiled):
    copy = shutil.copytree(profiled, tmp_path / "run")
    (path,) = copy.glob("tensorboard/*/plugins/profile/*/*.xplane.pb")
    path.write_bytes(path.read_bytes()[:-1000])
    # In a process of its own, whose TensorFlow is as talkative as a person's.
    line = refusal(fresh("app.profile", f"--workdir={copy}"), 1)
    assert line == (
        f"profile: {path} is truncated or no profile; delete it and record one with: "
        "lexrow train --workdir=DIR --profile_steps=START,STOP, or in Keras with "
        "TensorBoard(DIR, profile_batch=(START, STOP))"
    )


@pytest.mark.slow
def test_any_folder_above_a_profile_is_that_run(tmp_path, profiled):
    whole = done(tmp_path, "app.profile", f"--workdir={profiled}").out
    assert " calls of 2 steps" in whole
    for folder in (profiled / "tensorboard", profiled.parent):
        assert done(tmp_path, "app.profile", f"--workdir={folder}").out == whole


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "--workdir= is empty; name the folder of a run"),
        (("--workdir={tmp}",), "--workdir={tmp}: no profile there; record one with: lexrow train"),
        (("--workdir={tmp}/none",), "--workdir={tmp}/none: no such folder; give that of a run"),
        (("--workdir={tmp}", "--plot=a.bmp"), "--plot=a.bmp: give a name that ends in .png"),
        (("--workdir={tmp}", "--plot={tmp}/a.png"), "--workdir={tmp}: no profile there"),
        (("--json=x", "more"), "'more' is not a flag"),
    ],
)
def test_bad_input(tmp_path, flags, message):
    given = [flag.format(tmp=tmp_path) for flag in flags]
    assert message.format(tmp=tmp_path) in refused(tmp_path, "app.profile", *given)


@pytest.mark.slow
def test_a_resumed_run_knows_the_window_that_is_behind(tmp_path, corpus, profiled):
    copy = shutil.copytree(profiled, tmp_path / "run")
    end = logged(copy)[-1]["step"]
    again = done(tmp_path, "app.train", f"--workdir={copy}", "--epochs=3")
    assert "profile of steps" not in again.err
    # One that is given anew must lie ahead.
    given = ("app.train", f"--workdir={copy}", "--epochs=4")
    wrong = refused(tmp_path, *given, "--profile_steps=6,30")
    assert f"--profile_steps=6,30: steps {logged(copy)[-1]['step']} to " in wrong
    assert logged(copy)[-1]["step"] > end
    assert read_flags(copy / "flags.cfg")["epochs"] == "3"


@pytest.fixture(scope="module")
def rows(trained):
    return logged(trained)


def test_a_line_for_every_logged_step(trained, rows):
    assert [row["step"] for row in rows] == list(range(2, newest_step(trained) + 1, 2))
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
    events = accumulator.EventAccumulator(
        str(trained / "tensorboard" / trained.name), {"tensors": 0}
    )
    events.Reload()
    tags = {tag(name) for name in rows[0] if name != "step"}
    assert set(events.Tags()["tensors"]) == tags | {"settings", "_hparams_/session_start_info"}
    for name in ("loss", "learning_rate"):
        tensors = events.Tensors(tag(name))
        found = [(event.step, float(tf.make_ndarray(event.tensor_proto))) for event in tensors]
        assert found == [(row["step"], pytest.approx(row[name], rel=1e-6)) for row in rows]


@pytest.mark.parametrize(
    ("windows", "recorded"), [pytest.param("4,10,14,16", 2, marks=pytest.mark.slow), ("3,6", 1)]
)
def test_profiles_are_where_tensorboard_looks(tmp_path, corpus, windows, recorded):
    ended = done(tmp_path, *train(tmp_path / "run", corpus, f"--profile_steps={windows}"))
    profiles = list((tmp_path / "run/tensorboard/run").glob("plugins/profile/*/*.xplane.pb"))
    assert len(profiles) == recorded
    for profile in profiles:
        content = profile.read_bytes()
        assert all(name in content for name in (b"train", b"MatMul", b"update/", b"ahead"))
    told = [line for line in ended.err.splitlines() if line.startswith("profile of steps ")]
    assert len(told) == recorded
