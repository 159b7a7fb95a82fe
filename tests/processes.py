"""Processes and ports, as tests look at them and take them."""

from __future__ import annotations

import pathlib
import socket
import time
from collections.abc import Callable

from tests.integration.commands import SECONDS


def until(happened: Callable[[], object]) -> None:
    """Waits for something that has to happen."""
    deadline = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    """Whether there is such a process, and it has not ended (Linux)."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def listening(port: int) -> socket.socket:
    """Takes a port for the length of a `with` block."""
    return socket.create_server(("", port))
