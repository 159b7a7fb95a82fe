"""How batches come to a GPU, where there is none: TensorFlow takes the CPU for it."""

from __future__ import annotations

import json
import pathlib

import numpy as np
import pytest

from app.training import memory_plan
from app.training.run import train_and_evaluate
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
    size = memory_plan.shown(item.bytes)
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


@pytest.mark.slow
def test_a_run_trains_on_batches_made_there_as_on_copied_ones(data):
    values = {"subsample": 0.05, "epochs": 2, "log_seconds": 0, "compute_dtype": "float32"}
    losses = []
    for cache in ("auto", "none"):
        folder = data / cache
        config = gpu_jobs.config_of(data, folder, values | {"cache": cache})
        train_and_evaluate(config, folder, is_quiet=True)
        lines = (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()
        losses.append([entry["loss"] for entry in map(json.loads, lines) if "loss" in entry])
    assert len(losses[0]) > 2 and losses[0] == losses[1]
