"""How batches come to a GPU, where there is none: TensorFlow takes the CPU for it."""

from __future__ import annotations

import json
import os
import signal

import numpy as np
import pytest

from app.errors import StoppedError
from app.tables import memory
from app.training.run import train_and_evaluate
from app.training.runner import Runner
from tests.integration import gpu_jobs
from tests.integration.replicas import write_data


@pytest.fixture
def data(tmp_path, monkeypatch):
    gpu_jobs.pretend(monkeypatch)
    write_data(tmp_path)
    return tmp_path


def batches_of(job):
    return [(epoch, batch.numpy()) for epoch, batch in job.data.batches(range(2), 1)]


def test_a_gpu_makes_the_batches_of_words(data):
    on_gpu, *_ = gpu_jobs.made(data, data / "run", {"subsample": 0.05})
    on_host, *_ = gpu_jobs.made(data, data / "run", {"subsample": 0.05, "cache": "none"})
    (item,) = [item for item in on_gpu.placed.memory if item.name == "token ids"]
    assert item.place == "GPU:0" and item.bytes == 4 * on_gpu.data.epoch_size
    size = memory.shown(item.bytes)
    assert on_gpu.data.summary[-1] == (
        "input",
        f"token ids: {size} on GPU:0, which makes the batches",
    )
    assert on_host.data.summary[-1] == (
        "input",
        f"token ids stay on the host: they take {size}, and --cache=none does not keep them",
    )
    assert "token ids" not in [item.name for item in on_host.placed.memory]
    made, expected = batches_of(on_gpu), batches_of(on_host)
    assert len(made) > 10 and [epoch for epoch, _ in made] == [epoch for epoch, _ in expected]
    for (_, batch), (_, other) in zip(made, expected, strict=True):
        np.testing.assert_array_equal(batch, other)


def losses(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return {entry["step"]: entry["loss"] for entry in map(json.loads, lines) if "loss" in entry}


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
