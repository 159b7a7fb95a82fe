"""Watch the processes of a run on this machine: restart lost workers, and time the training."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from pathlib import Path

from absl import logging

from ..errors import RunError
from ..system.processes import Process
from .cluster_spec import Task

_USAGE_ERROR = 2  # the exit code of a process whose flags were refused
# Seconds in which the chief has to end after a server has ended, and after another process has
# refused its flags (the chief refuses them as well).
_LOST_SECONDS, _REFUSED_SECONDS = 60.0, 20.0


class Watcher:
    """Watches the processes of a run except its chief, and restarts lost workers.

    Args:
        processes: The processes to watch.
        is_asynchronous: Whether the run has parameter servers, so that it can lose a worker.
        kill_after: Seconds of training after which the last worker is killed; None for never.

    Attributes:
        is_stopping: Whether the chief was asked to stop.
    """

    def __init__(
        self, processes: Mapping[Task, Process], is_asynchronous: bool, kill_after: float | None
    ):
        self.is_stopping = False
        self._processes = processes
        self._is_asynchronous = is_asynchronous
        self._kill_after = kill_after
        self._end_times: dict[Task, float] = {}  # of processes that are not started again

    def check(self, training: float | None) -> None:
        """Start dead workers again; kill the last worker once, `kill_after` seconds into training.

        Workers that succeeded, refused their flags, or ended after a stop are not started again.

        Args:
            training: The seconds since the chief began to train; None before that.

        Raises:
            RunError: A worker keeps ending, or the chief still runs too long after the loss of a
                process that it needs.
        """
        for task, process in self._processes.items():
            if process.code is None:
                continue
            if self._is_replaceable(task, process.code):
                process.restart_if_ended()
            elif process.code and not self.is_stopping:
                self._wait_for_chief(task, process, training)
        if training is None or self._kill_after is None or training < self._kill_after:
            return
        self._kill_after = None
        victim = self._processes[max(task for task in self._processes if task[0] == "worker")]
        logging.info("killing %s, %.1f s after the start of training", victim.name, training)
        victim.send(signal.SIGKILL)

    def _wait_for_chief(self, task: Task, process: Process, training: float | None) -> None:
        """Raise RunError if the chief still runs too long after the end of a process that it needs.

        That is 60 s, or 20 s if the process refused its flags. An asynchronous training that has
        begun does not need a worker that refused its flags: a warning names that worker once.
        """
        refused = process.code == _USAGE_ERROR
        is_dispensable = refused and self._is_asynchronous and training is not None
        if task not in self._end_times:
            self._end_times[task] = time.monotonic()
            if is_dispensable:
                logging.warning("%s is missing from now on: %s", process.name, process.reason())
        waited = time.monotonic() - self._end_times[task]
        if not is_dispensable and waited > (_REFUSED_SECONDS if refused else _LOST_SECONDS):
            raise RunError(
                f"{process.name} ended, and the chief still runs without it: {process.reason()}"
            )

    def _is_replaceable(self, task: Task, code: int) -> bool:
        """Return whether to start an ended process again.

        A server is not, as its rows are lost with it. A worker is, unless it succeeded, refused its
        flags, or ended without a signal after the chief was asked to stop.
        """
        is_finished = code >= 0 and (self.is_stopping or code in (0, _USAGE_ERROR))
        return task[0] == "worker" and not is_finished


class TrainingClock:
    """The time since the chief began to train: since metrics.jsonl was first seen to have grown.

    Args:
        path: The path of metrics.jsonl.
    """

    def __init__(self, path: Path):
        self._path = path
        self._sizes: dict[int, int] = {}  # by inode, when the file was first seen
        self._start: float | None = None
        self.seconds()

    def seconds(self) -> float | None:
        """Return the seconds since the beginning of training; None before that."""
        if self._start is None and self._path.exists():
            # A run that continues writes a new file first, without the lines after the checkpoint.
            status = self._path.stat()
            if status.st_size > self._sizes.setdefault(status.st_ino, status.st_size):
                self._start = time.monotonic()
        return None if self._start is None else time.monotonic() - self._start
