"""Threads that call a function together, as the processes of a team do."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from app.types import Team


def together(processes: int, function: Callable[[Team], Any]) -> list[Any]:
    """What a function returns to each process of a team; the first error is raised."""
    barrier = threading.Barrier(processes)
    sent: list[bytes] = [b""] * processes

    def call(number: int) -> Any:
        def gather(message: bytes) -> list[bytes]:
            barrier.wait()
            sent[number] = message
            barrier.wait()
            return list(sent)

        names = tuple(f"worker {index}" for index in range(processes))
        try:
            return function(Team(number, gather, names))
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(processes) as pool:
        calls = [pool.submit(call, number) for number in range(processes)]
    errors = [error for one in calls if (error := one.exception())]
    for error in sorted(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
        raise error
    return [one.result() for one in calls]
