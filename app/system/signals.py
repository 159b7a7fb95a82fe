"""Ctrl-C and SIGTERM as a request to stop at the next convenient moment."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def asked_to_stop() -> Iterator[threading.Event]:
    """Yield an event that SIGINT or SIGTERM sets.

    The first signal of each kind sets the event, and puts the former handler back. So a second one
    normally ends the process at once. At the end of the block both former handlers are back. Only
    the main thread may call this.
    """
    event = threading.Event()
    previous: dict[int, Any] = {}

    def ask(number: int, _frame: object) -> None:
        """Set the event, and put the former handler of this signal back."""
        event.set()
        signal.signal(number, previous[number])

    for number in (signal.SIGINT, signal.SIGTERM):
        previous[number] = signal.signal(number, ask)
    try:
        yield event
    finally:
        for asked, handler in previous.items():
            signal.signal(asked, handler)
