"""Ctrl-C and SIGTERM as a wish that the loop fulfils between two calls."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def asked_to_stop() -> Iterator[threading.Event]:
    """An event that is set by SIGINT or SIGTERM; a second signal ends the process at once."""
    event = threading.Event()
    former = {}

    def ask(number: int, _frame: object) -> None:
        event.set()
        signal.signal(number, former[number])

    for number in (signal.SIGINT, signal.SIGTERM):
        former[number] = signal.signal(number, ask)
    try:
        yield event
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
