"""Ctrl-C and SIGTERM as a request to stop at the next convenient moment."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

from ..errors import StoppedError

# In seconds. A signal this soon after the first is taken for a part of the same wish: a person who
# presses Ctrl-C twice, or a scheduler that signals a process and its group.
_SAME_WISH = 1.0
_STDERR = 2  # its file descriptor


@contextlib.contextmanager
def asked_to_stop(message: str = "") -> Iterator[threading.Event]:
    """Yield an event that SIGINT or SIGTERM sets.

    The first signal sets the event and prints the message. A second one, at least a second later,
    goes to the former handler, which normally ends the process at once; an earlier one is ignored,
    even if the block has ended by then. After a block without a signal both former handlers are
    back. In another thread than the main one, no signal sets the event.

    Args:
        message: A line for standard error, which says how to end the process at once.
    """
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    previous: dict[int, Any] = {}
    first: list[float] = []

    def ask(number: int, _frame: object) -> None:
        """Set the event, or give a later signal to the former handler."""
        if first and time.monotonic() - first[0] >= _SAME_WISH:
            signal.signal(number, previous[number])
            signal.raise_signal(number)
        elif not first:
            first.append(time.monotonic())
            event.set()
            if message:  # not by print: the signal can come in the middle of one
                with contextlib.suppress(OSError):  # standard error is closed
                    os.write(_STDERR, f"\n{message}\n".encode())

    for number in (signal.SIGINT, signal.SIGTERM):
        previous[number] = signal.signal(number, ask)
    try:
        yield event
    finally:
        if not first:
            for asked, handler in previous.items():
                signal.signal(asked, handler)


@contextlib.contextmanager
def interrupted_after() -> Iterator[None]:
    """Let Ctrl-C interrupt only after the block, for what cannot be begun a second time.

    In another thread than the main one, there is no Ctrl-C.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: list[int] = []
    previous = signal.signal(signal.SIGINT, lambda number, _frame: asked.append(number))
    try:
        yield
    finally:
        if previous is not None:  # None: the program around Python set it
            signal.signal(signal.SIGINT, previous)
        if asked:
            signal.raise_signal(signal.SIGINT)


@contextlib.contextmanager
def stoppable(message: str) -> Iterator[None]:
    """Let SIGINT and SIGTERM end the block at once.

    In another thread than the main one, SIGTERM does what it did before.
    """
    is_main = threading.current_thread() is threading.main_thread()
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler) if is_main else None
    try:
        yield
    except KeyboardInterrupt as error:
        raise StoppedError(message) from error
    finally:
        if is_main:
            signal.signal(signal.SIGTERM, previous)
