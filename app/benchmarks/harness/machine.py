"""The machine that a benchmark ran on; a number without it means nothing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import logging

from ...system.host_memory import memory_bytes, read_field

# Above this share of the cores, whatever else runs would show in the timings.
_BUSY = 0.25


def cores() -> int:
    """Cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def describe(packages: Sequence[str]) -> dict[str, Any]:
    """Processor, memory, accelerators, system, and versions of Python and of the packages.

    load: processes that were running, on average over the last minute; says so if they are many.
    """
    load = os.getloadavg()[0]
    if load > _BUSY * cores():
        logging.warning("the machine is busy (load %.1f): timings will be off", load)
    versions = {package: importlib.metadata.version(package) for package in packages}
    return {
        "processor": _processor(),
        "cores": cores(),
        "memory_bytes": memory_bytes(),
        "accelerators": _accelerators(),
        "system": platform.platform(),
        "load": load,
        "versions": {"python": platform.python_version(), **versions},
    }


def line(machine: dict[str, Any]) -> str:
    """The description in one line."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"{'; '.join([machine['processor'], *machine['accelerators']])}; {machine['cores']} cores, "
        f"{machine['memory_bytes'] / 2**30:.0f} GiB; {machine['system']}; {versions}"
    )


def _processor() -> str:
    return read_field(Path("/proc/cpuinfo"), "model name") or platform.processor() or "processor ?"


def _accelerators() -> list[str]:
    """GPUs, by what NVIDIA's driver for Linux says of itself."""
    files = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    return [name for name in (read_field(file, "Model") for file in files) if name]
