from __future__ import annotations

import os

import pytest
import tensorflow as tf

from app.assembly import threads
from app.errors import UsageError
from app.settings import RunConfig


@pytest.fixture
def chosen(monkeypatch):
    """The threads that are set, on a machine of 8 cores."""
    numbers = {}
    for name in ("intra", "inter"):
        setter = f"set_{name}_op_parallelism_threads"
        keep = lambda count, name=name: numbers.update({name: count})  # noqa: E731
        monkeypatch.setattr(tf.config.threading, setter, keep)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    return numbers


@pytest.mark.parametrize(
    ("settings", "limit", "threads_of_one"),
    [
        ({}, "", 2),
        ({"task": "language_model"}, "", 8),
        ({"task": "language_model"}, "3", 3),
        ({"intra_op_threads": 5}, "3", 5),
    ],
)
def test_an_operation_takes_as_many_threads_as_its_task_needs(
    chosen, monkeypatch, settings, limit, threads_of_one
):
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", limit)
    threads.use_machine(RunConfig(device="CPU:0", **settings))
    assert chosen == {"intra": threads_of_one, "inter": 8}


def test_a_device_that_is_not_there_is_refused(chosen):
    with pytest.raises(UsageError, match="--device=TPU: not here"):
        threads.use_machine(RunConfig(device="TPU"))


def test_a_gpu_takes_memory_as_needed_and_is_refused_in_one_line_if_it_has_none(
    chosen, monkeypatch
):
    gpu, grown = tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU"), []

    def start(kind):
        raise tf.errors.InternalError(None, None, "CUDA failed.\nStatus: out of memory")

    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [gpu] * (kind == "GPU"))
    monkeypatch.setattr(tf.config, "list_logical_devices", start)
    monkeypatch.setattr(
        tf.config.experimental, "set_memory_growth", lambda *arguments: grown.append(arguments)
    )
    with pytest.raises(UsageError, match=r"GPU \(CUDA failed. Status: out of memory\); end other"):
        threads.use_machine(RunConfig())
    assert grown == [(gpu, True)]
    threads.use_machine(RunConfig(strategy="multi_worker"))  # starts them itself
