"""What the operating system tells of itself."""

from __future__ import annotations

import os
from pathlib import Path


def memory_bytes() -> int:
    """The machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def free_bytes() -> int:
    """Memory that can be taken: what Linux deems available; elsewhere, all there is.

    A limit of the control group (version 2), such as a container has, counts.
    """
    available = field(Path("/proc/meminfo"), "MemAvailable")
    free = int(available.split()[0]) * 1024 if available else memory_bytes()
    limit = (text(Path("/sys/fs/cgroup/memory.max")) or "max").strip()
    if limit == "max":
        return free
    used = int(text(Path("/sys/fs/cgroup/memory.current")) or 0)
    return min(free, int(limit) - used)


def resident_bytes() -> int:
    """Memory that this process has taken; files that it has mapped do not count (Linux)."""
    taken = field(Path("/proc/self/status"), "RssAnon")
    return int(taken.split()[0]) * 1024 if taken else 0


def field(path: Path, name: str) -> str | None:
    """The value of the first line `name : value` of a file of the proc file system."""
    found = text(path)
    if found is None:
        return None
    pairs = (line.partition(":") for line in found.splitlines())
    return next((value.strip() for key, _, value in pairs if key.strip() == name), None)


def text(path: Path) -> str | None:
    """What a file holds; None where there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return None
