"""Child processes that are restarted when they fail, and never outlive this process."""

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

# A process is given up when it ends this many times in a row, each time within these seconds.
_BRIEF_SECONDS, _BRIEF_ENDS = 20.0, 3


class Process:
    """A Python program as a child process.

    Args:
        name: The name of the process, for messages.
        arguments: The arguments after `python`.
        log: The file for its stderr; None for the stderr of this process.
        environment: Environment variables beside those of this process.
        prints_address: Whether the program prints its address to stdout, and ends when its stdin
            is closed. Otherwise its stdout goes where its stderr goes.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        log: Path | None,
        environment: Mapping[str, str] | None = None,
        prints_address: bool = False,
    ):
        self.name, self.arguments = name, list(arguments)
        self._log, self._environment = log, dict(environment or {})
        self._prints_address = prints_address
        self._brief = 0

    @contextlib.contextmanager
    def running(self) -> Iterator[Process]:
        """Start the process, and kill it at the end of the block."""
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
        """The exit code, negative for a signal, or None while the process runs."""
        return self._process.poll()

    def send(self, number: int) -> None:
        """Send a signal to the process if it still runs.

        Args:
            number: The number of the signal.
        """
        self._process.send_signal(number)

    def address(self) -> str:
        """Wait until the process is ready, and return its HOST:PORT.

        Raises:
            RunError: The process ended before.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            self._process.wait()
            raise RunError(f"{self.name} could not be started: {self.reason()}")
        return line

    def restart_if_ended(self) -> None:
        """Start the process again if it has ended.

        Raises:
            RunError: The process ends again and again soon after its start.
        """
        if self.code is None:
            return
        brief = time.monotonic() - self._started < _BRIEF_SECONDS
        self._brief = self._brief + 1 if brief else 1
        if self._brief == _BRIEF_ENDS:
            raise RunError(f"{self.name} keeps ending: {self.reason()}")
        logging.warning("%s ended (%s); starting it again", self.name, self.reason())
        self._start()

    def reason(self) -> str:
        """Return why the process ended: the signal, the last line of its log, or its exit code."""
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
                stdin=subprocess.PIPE if self._prints_address else subprocess.DEVNULL,
                stdout=subprocess.PIPE if self._prints_address else log,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C in a terminal reaches only this process
                env={"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ, **self._environment},
                preexec_fn=_end_with_parent(os.getpid()),
            )


def terminate(processes: Sequence[Process], seconds: float) -> None:
    """Send SIGTERM to processes, and wait until they have ended.

    Args:
        processes: The processes.
        seconds: The longest time to wait.
    """
    for process in processes:
        process.send(signal.SIGTERM)
    deadline = time.monotonic() + seconds
    while any(process.code is None for process in processes) and time.monotonic() < deadline:
        time.sleep(0.05)


def _end_with_parent(parent: int) -> Callable[[], None] | None:
    """Return a function for a child process that asks Linux to kill it when its parent ends."""
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)

    def ask() -> None:
        library.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG, <linux/prctl.h>
        if os.getppid() != parent:  # the parent ended before this call
            os._exit(1)

    return ask
