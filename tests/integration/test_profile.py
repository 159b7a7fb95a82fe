"""lexrow profile as a person runs it, and what it says of what cannot be read."""

from __future__ import annotations

import json
import shutil

import pytest

from app.checkpoints.workdir import read_flags
from tests.integration.commands import done, fresh, logged, refusal, run, train


@pytest.fixture(scope="module")
def profiled(tmp_path_factory, corpus):
    workdir = tmp_path_factory.mktemp("profiled") / "run"
    done(workdir.parent, *train(workdir, corpus, "--profile_steps=4,30"))
    return workdir


def xplane(workdir):
    (path,) = workdir.glob("tensorboard/plugins/profile/*/*.xplane.pb")
    return path


def test_what_it_says_and_writes(tmp_path, profiled):
    ended = fresh("app.profile", f"--workdir={profiled}", f"--json={tmp_path}/found.json")
    assert (ended.code, ended.err) == (0, "")
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
    path = xplane(copy)
    path.write_bytes(path.read_bytes()[:-1000])
    # In a process of its own, whose TensorFlow is as talkative as a person's.
    line = refusal(fresh("app.profile", f"--workdir={copy}"), 1)
    assert line == (
        f"profile: {path} is truncated or no profile; delete it and record one with: "
        "lexrow train --workdir=DIR --profile_steps=START,STOP, or in Keras with "
        "TensorBoard(DIR, profile_batch=(START, STOP))"
    )


def test_damaged_flags(tmp_path, profiled):
    copy = shutil.copytree(profiled, tmp_path / "run")
    with open(copy / "flags.cfg", "a") as file:
        file.write("--epochs=many\n")
    line = refusal(run(tmp_path, "app.profile", f"--workdir={copy}"))
    assert "flags.cfg: --epochs=many: " in line and "mend it" in line


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
    assert message.format(tmp=tmp_path) in refusal(run(tmp_path, "app.profile", *given))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("windows", "message"),
    [
        ("1,9", "steps 0 to 1 are the first call, which is compiled; give START,STOP from 2 to "),
        ("4,100000", "the run ends at about step "),
    ],
)
def test_a_window_that_the_run_has_no_steps_for(tmp_path, corpus, windows, message):
    workdir = tmp_path / "run"
    line = refusal(run(tmp_path, *train(workdir, corpus, f"--profile_steps={windows}")))
    assert f"--profile_steps={windows}: {message}" in line
    assert [path.name for path in workdir.iterdir()] == ["lock"]


@pytest.mark.slow
def test_a_resumed_run_knows_the_window_that_is_behind(tmp_path, corpus, profiled):
    copy = shutil.copytree(profiled, tmp_path / "run")
    end = logged(copy)[-1]["step"]
    again = done(tmp_path, "app.train", f"--workdir={copy}", "--epochs=3")
    assert "profile of steps" not in again.err
    # One that is given anew must lie ahead.
    given = ("app.train", f"--workdir={copy}", "--epochs=4")
    wrong = refusal(run(tmp_path, *given, "--profile_steps=6,30"))
    assert f"--profile_steps=6,30: steps {logged(copy)[-1]['step']} to " in wrong
    assert logged(copy)[-1]["step"] > end
    assert read_flags(copy / "flags.cfg")["epochs"] == "3"
