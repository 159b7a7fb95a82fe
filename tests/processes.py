"""Processes and ports, as tests look at them and take them."""

import contextlib
import pathlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

from app.system import machine
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
def peak_memory() -> Iterator[list[int]]:
    """Yields a list that has the largest memory of this process at the end, without its files."""
    found, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.001):
            found[0] = max(found[0], machine.resident_bytes())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        found[0] = max(found[0], machine.resident_bytes())
        done.set()
        thread.join()


def listening(port: int) -> socket.socket:
    """Takes a port for the length of a `with` block."""
    return socket.create_server(("", port))
