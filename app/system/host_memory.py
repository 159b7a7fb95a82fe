"""What the operating system tells of itself."""

from __future__ import annotations

import os
from pathlib import Path

# Where a control group of version 2 and of version 1 tells its limit, what it takes of it, and the
# parts of that, in memory.stat, which are of files (the kernel's admin-guide, cgroup-v2.rst and
# cgroup-v1/memory.rst).
_GROUPS = (
    (
        Path("/sys/fs/cgroup"),
        "memory.max",
        "memory.current",
        ("inactive_file", "active_file"),
    ),
    (
        Path("/sys/fs/cgroup/memory"),
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        ("total_inactive_file", "total_active_file"),
    ),
)


def memory_bytes() -> int:
    """The machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def free_bytes() -> int:
    """Memory that can be taken: what Linux deems available; elsewhere, all there is.

    A limit of the control group, such as a container has, counts; the parts of files that the
    group keeps in memory do not, as they give way.
    """
    available = field(Path("/proc/meminfo"), "MemAvailable")
    free = int(available.split()[0]) * 1024 if available else memory_bytes()
    for folder, limit, used, kept in _GROUPS:
        most = (text(folder / limit) or "max").strip()
        if most != "max":
            taken = int(text(folder / used) or 0)
            pairs = (line.split() for line in (text(folder / "memory.stat") or "").splitlines())
            cached = sum(int(count) for name, count in pairs if name in kept)
            free = min(free, int(most) - max(taken - cached, 0))
    return free


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
