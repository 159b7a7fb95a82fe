"""The memory and the processor of the machine, and the memory of this process."""

from __future__ import annotations

import os
import resource
from pathlib import Path

# For control groups of version 2 and of version 1: the folder, the files of the limit and of the
# usage, and the prefix of the fields in memory.stat for cached files (the kernel's admin-guide,
# cgroup-v2.rst and cgroup-v1/memory.rst).
_GROUPS = (
    (Path("/sys/fs/cgroup"), "memory.max", "memory.current", ""),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
)
# The limits of `ulimit` on memory: the flag, the limit, and the field of /proc/self/status that
# counts for it.
_LIMITS = (("-v", resource.RLIMIT_AS, "VmSize"), ("-d", resource.RLIMIT_DATA, "VmData"))
# Bytes that threads and their heaps reserve, but do not use, after the memory is planned: 8 MB for
# the stack of a thread, and 64 MB for each heap of glibc.
_RESERVED = 1 << 30


def process_limits() -> list[tuple[str, int, int]]:
    """Return the limits of `ulimit` on the memory of this process, the one that leaves least first.

    Returns:
        The flag of `ulimit`, the limit, and the bytes that it leaves, without what threads reserve.
    """
    found = []
    for flag, kind, field in _LIMITS:
        most = resource.getrlimit(kind)[0]
        if most != resource.RLIM_INFINITY:
            used = (read_field(Path("/proc/self/status"), field) or "0").split()[0]
            found.append((flag, most, max(0, most - 1024 * int(used) - _RESERVED)))
    return sorted(found, key=lambda item: item[2])


def memory_bytes() -> int:
    """Return the size of the machine's memory, in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def free_bytes() -> int:
    """Return the bytes of memory that are free, at most what this process may still use.

    A container has a control group, and `ulimit` may limit a process. Memory with cached files
    counts as free, as the system drops them when memory is needed. Without /proc (not Linux),
    return the size of all memory.
    """
    available = read_field(Path("/proc/meminfo"), "MemAvailable")
    free = int(available.split()[0]) * 1024 if available else memory_bytes()
    for folder, limit, used, prefix in _GROUPS:
        limit_text = (_read_text(folder / limit) or "max").strip()
        if limit_text != "max":
            usage = int(_read_text(folder / used) or 0)
            lines = (_read_text(folder / "memory.stat") or "").splitlines()
            pairs = (line.split() for line in lines)
            file_fields = {f"{prefix}inactive_file", f"{prefix}active_file"}
            cached = sum(int(count) for name, count in pairs if name in file_fields)
            free = min(free, int(limit_text) - max(usage - cached, 0))
    return min([free, *(left for *_, left in process_limits())])


def resident_bytes() -> int:
    """Return the bytes of memory of this process, without mapped files (Linux; elsewhere 0)."""
    taken = read_field(Path("/proc/self/status"), "RssAnon")
    return int(taken.split()[0]) * 1024 if taken else 0


def read_field(path: Path, name: str) -> str | None:
    """Return the value of the first line `name : value` of a file.

    Return None if the file has no such line, or cannot be read.
    """
    pairs = (line.partition(":") for line in (_read_text(path) or "").splitlines())
    return next((value.strip() for key, _, value in pairs if key.strip() == name), None)


def _read_text(path: Path) -> str | None:
    """Return the text of a file, or None if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return None


_PROCESSOR = Path("/proc/cpuinfo")  # on Linux


def has_fast_bfloat16() -> bool:
    """Return whether this CPU multiplies matrices of bfloat16 faster than matrices of float32.

    Intel's CPUs do so only with AMX, which virtual machines may not have. Without it, a product of
    4,096 x 100 x 1,024 numbers took twice the time of float32 (data/benchmarks/README.md).
    """
    flags = set((read_field(_PROCESSOR, "flags") or "").split())
    is_intel = read_field(_PROCESSOR, "vendor_id") == "GenuineIntel"
    return "amx_bf16" in flags or ("avx512_bf16" in flags and not is_intel)
