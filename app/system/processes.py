"""Child processes that never outlive this process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from absl import logging

from ..errors import RunError, UsageError
from .launcher import end_with_parent

# A process is given up when it ends this many times in a row, each time within these seconds.
_BRIEF_SECONDS, _BRIEF_ENDS = 20.0, 3


class Process:
    """A Python program as a child process, which `running` starts.

    Args:
        name: The name of the process, for messages.
        arguments: The arguments after `python`.
        log: The file for its stderr; None for the stderr of this process. `running` empties it.
        environment: Environment variables that are added to those of this process.
        prints_address: Whether the program prints its address to stdout, and ends when its stdin
            is closed. Its stdin and stdout are then pipes, and `input` and `output` not used.
        input: The file for its stdin; by default it is empty.
        output: The file for its stdout; None for `log` or, without a log, this process's stdout.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        log: Path | None,
        environment: Mapping[str, str] | None = None,
        prints_address: bool = False,
        input: Path | None = None,
        output: Path | None = None,
    ):
        self.name, self.arguments = name, list(arguments)
        self._log, self._environment = log, dict(environment or {})
        self._prints_address = prints_address
        self._input, self._output = input, output
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

    def wait(self) -> None:
        """Wait until the process has ended."""
        self._process.wait()

    @property
    def code(self) -> int | None:
        """The exit code, negative for a signal, or None while the process runs."""
        return self._process.poll()

    def send(self, number: int) -> None:
        """Send a signal to the process if it still runs, but not to its own processes.

        Args:
            number: The number of the signal.
        """
        self._process.send_signal(number)

    def address(self) -> str:
        """Wait until a process that `prints_address` prints it, and return that HOST:PORT.

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
        """Start the process again if it has ended, and log a warning with the reason.

        Raises:
            RunError: The process has ended three times in a row, the last two times within 20
                seconds of its start.
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
        """Return why the process ended: the signal, the last line of its log, or its exit code.

        Only for a process that has ended.
        """
        code = self.code
        assert code is not None
        if code < 0:
            return f"signal {-code}"
        return (self._log and _last_line(self._log)) or f"exit code {code}"

    def _start(self) -> None:
        """Start the process in a session of its own, with TensorFlow's log level 3 if none is set.

        Its stderr is appended to the log. On Linux it is killed when this process ends.
        """
        self._started = time.monotonic()
        with contextlib.ExitStack() as stack:
            log = None if self._log is None else stack.enter_context(open(self._log, "ab"))
            source = stack.enter_context(open(self._input or os.devnull, "rb"))
            output = stack.enter_context(open(self._output, "wb")) if self._output else log
            self._process = subprocess.Popen(
                [sys.executable, *self.arguments],
                stdin=subprocess.PIPE if self._prints_address else source,
                stdout=subprocess.PIPE if self._prints_address else output,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C in a terminal reaches only this process
                env={"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ, **self._environment},
                preexec_fn=end_with_parent(os.getpid()),
            )


class Usage(NamedTuple):
    """The time and memory of a process.

    Attributes:
        started: The time of its start, seconds since 1970.
        seconds: The seconds from its start to its end.
        peak_bytes: The most memory that it had resident (ru_maxrss of getrusage(2)).
    """

    started: float
    seconds: float
    peak_bytes: int


def run(
    name: str,
    arguments: Sequence[str],
    log: Path,
    input: Path | None = None,
    output: Path | None = None,
) -> Usage:
    """Run a Python program to its end, and return its time and memory.

    Args:
        name: The name of the process, for messages.
        arguments: The arguments after `python`.
        log: The file for its stderr; it is emptied first.
        input: The file for its stdin; by default it is empty.
        output: The file for its stdout, which is emptied first; by default `log`.

    Raises:
        UsageError: The program ended with exit code 2.
        RunError: The program ended with another exit code than 0.
    """
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "usage.json"
        launcher = ["-m", f"{__package__}.launcher", str(result), sys.executable]
        process = Process(name, [*launcher, *arguments], log, input=input, output=output)
        with process.running():
            process.wait()
        assert process.code == 0, process.reason()
        values = json.loads(result.read_text(encoding="utf-8"))
    if code := values.pop("code"):
        error = UsageError if code == 2 else RunError
        raise error(f"{name} ended with exit code {code}: {_last_line(log) or 'no output'}")
    return Usage(**values)


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


def _last_line(log: Path) -> str:
    """Return the last line of a file that is not blank, stripped, or "" if there is none."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
