"""Child processes that never outlive this process."""

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
    """A Python program as a child process, which `running` starts.

    Args:
        arguments: The arguments after `python`.
        log: The file for its output, which `running` empties; None for that of this process.
        environment: Environment variables that are added to those of this process.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        log: Path | None,
        environment: Mapping[str, str] | None = None,
    ):
        self.name, self.arguments = name, list(arguments)
        self._log, self._environment = log, dict(environment or {})
        self._brief = 0

    @contextlib.contextmanager
    def running(self) -> Iterator[Process]:
        """Start the process, and kill it with its own processes at the end of the block.

        The log is emptied first. If the process has ended by the end of the block, nothing is
        killed, not even processes that it started.
        """
        if self._log is not None:
            self._log.write_bytes(b"")
        self._start()
        try:
            yield self
        finally:
            if self.code is None:
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    @property
    def code(self) -> int | None:
        """The exit code, negative for a signal, or None while the process runs."""
        return self._process.poll()

    def send(self, number: int) -> None:
        """Send a signal to the process if it still runs, but not to its own processes."""
        self._process.send_signal(number)

    def restart_if_ended(self) -> None:
        """Start the process again if it has ended, and log a warning with the reason.

        Raises:
            RunError: The process has ended three times in a row, the last two times within 20
                seconds of its start.
        """
        if self.code is None:
            return
        self._brief = self._brief + 1 if time.monotonic() - self._started < _BRIEF_SECONDS else 1
        if self._brief == _BRIEF_ENDS:
            raise RunError(f"{self.name} keeps ending: {self.reason()}")
        logging.warning("%s ended (%s); starting it again", self.name, self.reason())
        self._start()

    def reason(self) -> str:
        """Return why the process ended: the signal, the last line of its log, or its exit code.

        Only for a process that has ended.
        """
        code = self.code
        assert code is not None
        if code < 0:
            return f"signal {-code}"
        return (self._log and last_line(self._log)) or f"exit code {code}"

    def _start(self) -> None:
        """Start the process in a session of its own, with TensorFlow's log level 3 if none is set.

        Its output is appended to the log. It is killed when this process ends.
        """
        self._started = time.monotonic()
        with open(self._log, "ab") if self._log else contextlib.nullcontext() as log:
            self._process = subprocess.Popen(
                [sys.executable, *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in a terminal reaches only this process
                env={"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ, **self._environment},
                preexec_fn=end_with_parent(os.getpid()),
            )


def terminate(processes: Sequence[Process], seconds: float) -> None:
    """Send SIGTERM to processes, and wait until all have ended or the time is over.

    Args:
        processes: The processes. Those that still run afterwards are not killed.
        seconds: The longest time to wait.
    """
    for process in processes:
        process.send(signal.SIGTERM)
    deadline = time.monotonic() + seconds
    while any(process.code is None for process in processes) and time.monotonic() < deadline:
        time.sleep(0.05)


def last_line(log: Path) -> str:
    """Return the last line of a file that is not blank, stripped, or "" if there is none."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def end_with_parent(parent: int) -> Callable[[], None]:
    """Return a function for a child process, by which Linux kills it when its parent ends.

    The function exits at once if the parent has ended already.

    Args:
        parent: The id of the parent process.
    """
    library = ctypes.CDLL(None)

    def ask() -> None:
        """Ask Linux to send SIGKILL when the parent ends; exit if it has ended already."""
        library.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG, <linux/prctl.h>
        if os.getppid() != parent:  # the parent ended before this call
            os._exit(1)

    return ask
