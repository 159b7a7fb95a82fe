"""The banner that describes a run before it starts."""

from __future__ import annotations

import os

import tensorflow as tf

from ..checkpoints.position import Position
from ..settings import Config
from ..settings.flag_values import by_name, defaults
from ..system import program_cache
from . import memory_plan, progress
from .job import Job

_NVIDIA_DRIVER = "/proc/driver/nvidia/version"


def banner(settings: Config, job: Job, position: Position | None = None, strategy: str = "") -> str:
    """Return the banner: devices, changed flags, data, tables, memory and number of steps.

    It is text of several lines, and nothing is printed. A line warns if there is an NVIDIA driver
    but TensorFlow finds no GPU. With --plan_only the banner lists everything that takes memory.

    Args:
        settings: The configuration of the run.
        job: The job to train.
        position: The position of the newest checkpoint of the run, or None.
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
    return "\n".join(
        (
            f"device      {_device(job.placed.device)}, products in {job.model.dtype.name}",
            *_warnings(),
            *_programs(job.placed.device),
            *([f"strategy    {strategy}"] if strategy else ()),
            f"flags       {' '.join(changed) or 'all as by default'}",
            *(f"{title:<11} {text}" for title, text in job.data.summary),
            f"tables      {tables}",
            f"memory      {totals}",
            *whole,
            f"plan        {_plan(settings, job, position)}",
        )
    )


def _plan(settings: Config, job: Job, position: Position | None) -> str:
    """Return how many steps the run has to make, or that it has none and what to do then."""
    epochs, patience = settings.run.epochs, settings.run.patience
    made = position.epoch if position else 0
    if made >= epochs:
        more = f"give --epochs={made + 1} or more"
        return f"nothing to train: the run has made {made} epoch(s); {more}"
    if position and progress.is_done(position, epochs, patience):
        more = f"give a --patience above {patience}, or 0"
        return f"nothing to train: none of the last {position.since} epochs was better; {more}"
    steps = f"{progress.steps_left(position, epochs, job):,} steps"
    size = f"{settings.input.batch_tokens:,} {job.data.batch_unit}"
    left = " left" if position and position.step else ""
    return f"{'1 epoch' if epochs == 1 else f'{epochs} epochs'}, about {steps} of {size}{left}"


def _device(used: str) -> str:
    """Return the device of a run, and all that TensorFlow finds if there are others."""
    devices = tf.config.list_physical_devices("CPU") + tf.config.list_physical_devices("GPU")
    names = [device.name.removeprefix("/physical_device:") for device in devices]
    return used if names == [used] else f"{used} of {', '.join(names)}"


def _programs(device: str) -> list[str]:
    """Return a line with the folder where XLA stores its programs for a GPU, [] if there is none.

    Args:
        device: The device of the run.
    """
    folder = program_cache.folder(os.environ) if device.startswith("GPU") else ""
    return [f"programs    compiled by XLA, stored in {folder}"] if folder else []


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
