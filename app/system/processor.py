"""The processor of the machine."""

from __future__ import annotations

from pathlib import Path

from .host_memory import read_field

_PROCESSOR = Path("/proc/cpuinfo")  # on Linux


def has_fast_bfloat16() -> bool:
    """Return whether this CPU multiplies matrices of bfloat16 faster than matrices of float32.

    Intel's CPUs do so only with AMX, which virtual machines may not have. Without it, a product of
    4,096 x 100 x 1,024 numbers took twice the time of float32 (data/benchmarks/README.md).
    """
    flags = set((read_field(_PROCESSOR, "flags") or "").split())
    is_intel = read_field(_PROCESSOR, "vendor_id") == "GenuineIntel"
    return "amx_bf16" in flags or ("avx512_bf16" in flags and not is_intel)
