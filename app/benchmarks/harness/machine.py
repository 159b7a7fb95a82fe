"""The machine that a benchmark runs on: its description, its cores and its memory."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from absl import logging

from ...system import host_memory
from ...system.host_memory import memory_bytes, read_field

# Load of the last minute, as a share of the cores. Above it, other work disturbs the timings.
_BUSY = 0.25


def cores() -> int:
    """Return the number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def describe(packages: Sequence[str]) -> dict[str, Any]:
    """Return a description of the machine, and log a warning if it is busy.

    Args:
        packages: The packages whose versions are named, beside Python's.

    Returns:
        `processor`, `cores`, `memory_bytes`, `accelerators`, `system`, `load` (running processes on
        average over the last minute) and `versions`.

    Raises:
        importlib.metadata.PackageNotFoundError: A package is not installed.
    """
    load = os.getloadavg()[0]
    if load > _BUSY * cores():
        logging.warning("the machine is busy (load %.1f): timings will be off", load)
    versions = {package: importlib.metadata.version(package) for package in packages}
    model = read_field(Path("/proc/cpuinfo"), "model name")
    return {
        "processor": model or platform.processor() or "processor ?",
        "cores": cores(),
        "memory_bytes": memory_bytes(),
        "accelerators": _accelerators(),
        "system": platform.platform(),
        "load": load,
        "versions": {"python": platform.python_version(), **versions},
    }


def line(machine: dict[str, Any]) -> str:
    """Return a description in one line.

    Args:
        machine: The description by `describe`.
    """
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"{'; '.join([machine['processor'], *machine['accelerators']])}; {machine['cores']} cores, "
        f"{machine['memory_bytes'] / 2**30:.0f} GiB; {machine['system']}; {versions}"
    )


@contextlib.contextmanager
def watching(look: Callable[[], None], seconds: float) -> Iterator[None]:
    """Call a function in a thread, again and again until the end of the block.

    Args:
        look: The function. If it raises, it is not called again.
        seconds: The time before the first call, and between two calls.
    """
    ended = threading.Event()

    def watch() -> None:
        """Call `look` every `seconds` until the block has ended."""
        while not ended.wait(seconds):
            look()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def missing_memory(needed: float, share: float = 1.0) -> str | None:
    """Return how much memory is needed and free, as text, if there is too little, else None.

    Args:
        needed: The bytes that are needed.
        share: The share of the free memory that may be used.
    """
    free = host_memory.free_bytes()
    if needed <= share * free:
        return None
    return f"needs {needed / 1e9:,.1f} GB, {free / 1e9:.1f} are free"


def _accelerators() -> list[str]:
    """Return the model of each GPU that NVIDIA's driver for Linux lists; empty elsewhere."""
    files = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    return [name for name in (read_field(file, "Model") for file in files) if name]
