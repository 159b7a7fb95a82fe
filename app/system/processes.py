"""Processes that this one starts, watches, starts again, and never leaves behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from absl import logging

from ..errors import RunError

# One that ends sooner than this after its start, so often in a row, will not do any better.
_BRIEF_SECONDS, _BRIEF_ENDS = 20.0, 3


class Process:
    """A command of Python as a process.

    name: for messages; arguments: as after `python`; log: the file for what it writes to stderr,
    None for the stderr of this process; environment: what it has beside that of this process; says:
    whether it tells its address on stdout and ends when its stdin does, else its stdout goes where
    its stderr goes.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        log: Path | None,
        environment: Mapping[str, str] | None = None,
        says: bool = False,
    ):
        self.name, self.arguments = name, list(arguments)
        self._log, self._environment, self._says = log, dict(environment or {}), says
        self._brief = 0

    @contextlib.contextmanager
    def running(self) -> Iterator[Process]:
        """Starts it, and ends it with the block."""
        if self._log is not None:
            self._log.write_bytes(b"")
        self._start()
        try:
            yield self
        finally:
            self._process.kill()
            self._process.wait()

    @property
    def code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    def send(self, number: int) -> None:
        """Sends it a signal, if it still runs."""
        self._process.send_signal(number)

    def address(self) -> str:
        """Its HOST:PORT, when it is ready. RunError if it ends before."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            self._process.wait()
            raise RunError(f"{self.name} could not be started: {self.reason()}")
        return line

    def revive(self) -> None:
        """Starts it again if it has ended. RunError if it keeps ending."""
        if self.code is None:
            return
        brief = time.monotonic() - self._started < _BRIEF_SECONDS
        self._brief = self._brief + 1 if brief else 1
        if self._brief == _BRIEF_ENDS:
            raise RunError(f"{self.name} keeps ending: {self.reason()}")
        logging.warning("%s ended (%s); starting it again", self.name, self.reason())
        self._start()

    def reason(self) -> str:
        """Why it ended, once it has: a signal, the last line of its log, or its exit code."""
        code = self.code
        assert code is not None
        text = "" if self._log is None else self._log.read_text("utf-8", errors="replace")
        lines = text.splitlines()
        return f"signal {-code}" if code < 0 else lines[-1] if lines else f"exit code {code}"

    def _start(self) -> None:
        self._started = time.monotonic()
        with contextlib.ExitStack() as stack:
            log = None if self._log is None else stack.enter_context(open(self._log, "ab"))
            self._process = subprocess.Popen(
                [sys.executable, *self.arguments],
                stdin=subprocess.PIPE if self._says else subprocess.DEVNULL,
                stdout=subprocess.PIPE if self._says else log,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C in a terminal is for this process only
                env={"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ, **self._environment},
                preexec_fn=_dying_with(os.getpid()),
            )


def end(processes: Sequence[Process], seconds: float) -> None:
    """Asks them to end, and gives them so many seconds."""
    for process in processes:
        process.send(signal.SIGTERM)
    deadline = time.monotonic() + seconds
    while any(process.code is None for process in processes) and time.monotonic() < deadline:
        time.sleep(0.05)


def _dying_with(parent: int) -> Callable[[], None] | None:
    """What asks Linux, in a child of this process, to kill it when this process ends."""
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)

    def ask() -> None:
        library.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG, <linux/prctl.h>
        if os.getppid() != parent:  # it ended before
            os._exit(1)

    return ask
