"""The memory that a run may use, in each place where tables can live."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from tensorflow.python.client import device_lib  # no public module knows the memory of a GPU

from ..settings import Config
from ..system import host_memory
from ..training.memory_plan import FILE, HOST

# The share of the free memory that a plan may use. The rest is for memory that no plan counts.
_SHARE = 0.95


def free_memory(config: Config, devices: list[str]) -> dict[str, int]:
    """Return the bytes that a run may use in each place, including the bytes that it uses already.

    Of the free memory of the machine and of a GPU, 95 percent count. --device_memory gives the
    bytes of every device instead. A place whose limit is not known is left out.

    Args:
        config: The settings of the run.
        devices: The devices of the run, such as `GPU:0`.

    Returns:
        Bytes by place: the host, each GPU or limited device, and the file of --table_file.
    """
    free = {HOST: int(_SHARE * host_memory.free_bytes()) + host_memory.resident_bytes()}
    for name in devices:
        if config.table.device_memory:
            free[name] = int(config.table.device_memory * 1e9)
        elif name.startswith("GPU"):
            free[name] = int(_SHARE * _gpu_bytes(name))
    if config.table.table_file:
        path = Path(config.table.table_file)
        file_bytes = path.stat().st_size if path.is_file() else 0
        with contextlib.suppress(OSError):  # the folder may not exist yet
            free[FILE] = file_bytes + shutil.disk_usage(path.absolute().parent).free
    return free


def _gpu_bytes(name: str) -> int:
    """Return the bytes of a GPU that TensorFlow may use; this starts TensorFlow's devices."""
    devices = device_lib.list_local_devices()
    return next(device.memory_limit for device in devices if device.name.endswith(name))
