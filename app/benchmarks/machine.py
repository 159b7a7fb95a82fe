"""The machine that a benchmark ran on; a number without it means nothing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import logging

# Above this share of the cores, whatever else runs would show in the timings.
_BUSY = 0.25


def cores() -> int:
    """Cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def free_bytes() -> int:
    """Memory that a new process can take: what Linux deems available; elsewhere, all there is.

    A limit of the control group (version 2), such as a container has, counts.
    """
    available = _field(Path("/proc/meminfo"), "MemAvailable")
    free = int(available.split()[0]) * 1024 if available else _memory_bytes()
    limit = (_text(Path("/sys/fs/cgroup/memory.max")) or "max").strip()
    if limit == "max":
        return free
    used = int(_text(Path("/sys/fs/cgroup/memory.current")) or 0)
    return min(free, int(limit) - used)


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
        "memory_bytes": _memory_bytes(),
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


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _processor() -> str:
    return _field(Path("/proc/cpuinfo"), "model name") or platform.processor() or "processor ?"


def _accelerators() -> list[str]:
    """GPUs, by what NVIDIA's driver for Linux says of itself."""
    files = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    return [name for name in (_field(file, "Model") for file in files) if name]


def _field(path: Path, name: str) -> str | None:
    """The value of the first line `name : value` of a file of the proc file system."""
    text = _text(path)
    if text is None:
        return None
    pairs = (line.partition(":") for line in text.splitlines())
    return next((value.strip() for key, _, value in pairs if key.strip() == name), None)


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return None
