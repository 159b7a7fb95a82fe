"""Call a function of this folder in this process, for `programs.run`.

It imports little else, so that the memory of the process is that of the function. Without a GPU the
process gets no more memory than is free at its start (Linux), so that a side that needs more is
left out, and no other program is ended for it.
"""

from __future__ import annotations

import importlib
import json
import re
import resource
import sys
import types
from pathlib import Path

from app.system import machine

_RESERVED = 2 << 30  # address space of the stacks and heaps of threads, which stays empty


def call(function: str, result: str, job: str) -> None:
    """Call a function, and write its result to a file as JSON.

    Args:
        function: The function as `module:function`.
        result: The file.
        job: The attributes of its only argument, as JSON.
    """
    module, _, name = function.partition(":")
    if not Path("/proc/driver/nvidia/gpus").exists():
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        most = machine.free_bytes() + _RESERVED
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    try:
        found = importlib.import_module(f"tests.benchmarks.{module}")
        values = getattr(found, name)(types.SimpleNamespace(**json.loads(job)))
    except Exception as error:
        is_lacking = isinstance(error, ImportError | MemoryError)
        if not (is_lacking or type(error).__name__ == "ResourceExhaustedError"):
            raise
        text = re.sub(r"\{\{.*?\}\}\s*", "", str(error)) or "out of memory"
        values = {"left_out": text.splitlines()[0]}
    Path(result).write_text(json.dumps(values), encoding="utf-8")


if __name__ == "__main__":
    call(*sys.argv[1:])
