"""How batches come to a GPU, where there is none: TensorFlow takes the CPU for it."""

import json
import os
import signal

import pytest

from app.errors import StoppedError
from app.training.run import banner, train_and_evaluate
from app.training.runner import Runner
from tests.integration import gpu_jobs
from tests.integration.replicas import write_data


@pytest.fixture
def data(tmp_path, monkeypatch):
    gpu_jobs.pretend(monkeypatch)
    write_data(tmp_path)
    return tmp_path


def losses(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return {entry["step"]: entry["loss"] for entry in map(json.loads, lines) if "loss" in entry}


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({}, "compiled by XLA, stored in /its folder"),
        ({"table": "sharded", "hot_rows": "5"}, "compiled by XLA"),
        (
            {"table": "sharded", "hot_rows": "5", "loss": "softmax"},
            "none, so steps are slower: --loss=softmax goes through all rows, and --table=sharded",
        ),
    ],
)
def test_the_banner_says_whether_steps_are_compiled(data, monkeypatch, values, line):
    flag = '--tf_xla_persistent_cache_directory="/its folder"'
    monkeypatch.setenv("TF_XLA_FLAGS", flag)
    job, config, _ = gpu_jobs.made(data, data / "run", values)
    assert f"\nprograms    {line}" in banner(config, job)


@pytest.mark.slow
def test_a_run_trains_on_batches_made_there_as_on_copied_ones(data, monkeypatch):
    """And a run that was stopped within an epoch goes on as if it had not been."""

    def config(name, **values):
        values = {"subsample": 0.05, "epochs": 2, "log_seconds": 0, "steps_per_call": 2} | values
        return gpu_jobs.config_of(data, data / name, {"compute_dtype": "float32"} | values)

    train_and_evaluate(config("made"), data / "made", is_quiet=True)
    train_and_evaluate(config("copied", cache="none"), data / "copied", is_quiet=True)
    calls, run_steps = [], Runner.run_steps

    def run_and_stop(self, *arguments):
        calls.append(arguments)
        if len(calls) == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        return run_steps(self, *arguments)

    monkeypatch.setattr(Runner, "run_steps", run_and_stop)
    with pytest.raises(StoppedError):
        train_and_evaluate(config("stopped"), data / "stopped", is_quiet=True)
    assert len(calls) == 4
    train_and_evaluate(config("stopped"), data / "stopped", is_quiet=True)
    made = losses(data / "made")
    assert len(made) > 8
    assert losses(data / "copied") == made
    assert losses(data / "stopped") == made
