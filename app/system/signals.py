"""Ctrl-C and SIGTERM as a request to stop at the next convenient moment."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def asked_to_stop() -> Iterator[threading.Event]:
    """Yield an event that SIGINT or SIGTERM sets. A second signal ends the process at once."""
    event = threading.Event()
    previous: dict[int, Any] = {}

    def ask(number: int, _frame: object) -> None:
        event.set()
        signal.signal(number, previous[number])

    for number in (signal.SIGINT, signal.SIGTERM):
        previous[number] = signal.signal(number, ask)
    try:
        yield event
    finally:
        for asked, handler in previous.items():
            signal.signal(asked, handler)
