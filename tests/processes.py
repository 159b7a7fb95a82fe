"""Processes and ports, as tests look at them and take them."""

from __future__ import annotations

import contextlib
import pathlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

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


@contextlib.contextmanager
def listening(port: int) -> Iterator[None]:
    """Takes whatever connections are made to a port, for the length of the block."""
    done = threading.Event()
    with socket.create_server(("", port)) as server:
        server.settimeout(0.1)

        def take() -> None:
            while not done.is_set():  # one that is not taken would hold a place in the queue
                with contextlib.suppress(OSError):
                    server.accept()[0].close()

        thread = threading.Thread(target=take)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
