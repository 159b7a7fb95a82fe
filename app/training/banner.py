"""The banner that describes a run before it starts."""

from __future__ import annotations

import os

import tensorflow as tf

from ..config import Config
from ..config.settings import by_name, defaults
from . import memory_plan
from .job import Job

_NVIDIA_DRIVER = "/proc/driver/nvidia/version"


def banner(settings: Config, job: Job, strategy: str = "") -> str:
    """Return the banner: devices, changed flags, data, tables, memory and number of steps.

    It is text of several lines, and nothing is printed. A line warns if there is an NVIDIA driver
    but TensorFlow finds no GPU. With --plan_only the banner lists everything that takes memory.

    Args:
        settings: The configuration of the run.
        job: The job to train.
        strategy: A description of the processes and replicas, empty for a single device.
    """
    values = by_name(settings)
    usual = defaults(values)
    changed = [f"--{name}={value}" for name, value in values.items() if value != usual[name]]
    tables = ", ".join(
        f"{item.name} {item.size} ({memory_plan.shown(item.bytes)})"
        for item in job.placed.memory
        if item.name in job.model.tables()
    )
    totals = ", ".join(
        f"{place} {memory_plan.shown(count)}"
        for place, count in memory_plan.totals(job.placed.memory).items()
    )
    whole = memory_plan.lines(job.placed.memory) if settings.run.plan_only else ()
    epochs = "1 epoch" if settings.run.epochs == 1 else f"{settings.run.epochs} epochs"
    steps = settings.run.epochs * job.data.expected_batches * job.data.steps_per_batch
    return "\n".join(
        (
            f"device      {job.placed.device} of {_devices()}, products in {job.model.dtype.name}",
            *_warnings(),
            *([f"strategy    {strategy}"] if strategy else ()),
            f"flags       {' '.join(changed) or 'all as by default'}",
            *(f"{title:<11} {text}" for title, text in job.data.summary),
            f"tables      {tables}",
            f"memory      {totals}",
            *whole,
            f"plan        {epochs}, about {steps:,} steps of "
            f"{settings.input.batch_tokens:,} {job.data.batch_unit}",
        )
    )


def _devices() -> str:
    """Return the names of all CPUs and GPUs that TensorFlow finds, such as "CPU:0, GPU:0"."""
    devices = tf.config.list_physical_devices("CPU") + tf.config.list_physical_devices("GPU")
    return ", ".join(device.name.removeprefix("/physical_device:") for device in devices)


def _warnings() -> list[str]:
    """Return a warning line if there is an NVIDIA driver but TensorFlow finds no GPU, else [].

    There is no warning if CUDA_VISIBLE_DEVICES hides all GPUs.
    """
    is_hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    has_driver = os.path.exists(_NVIDIA_DRIVER)
    if tf.config.list_physical_devices("GPU") or is_hidden or not has_driver:
        return []
    return [
        "            there is an NVIDIA driver, but TensorFlow finds no GPU: `make setup` again; "
        "TF_CPP_MIN_LOG_LEVEL=0 shows why"
    ]
