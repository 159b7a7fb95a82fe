"""Servers on this machine as processes, watched and started again: see `app.training.server`."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from absl import logging

from app.errors import RunError, UsageError
from app.training.signals import asked_to_stop

_WATCH_SECONDS = 0.2
# A server that ends sooner than this after its start, so often in a row, will not do any better.
_BRIEF_SECONDS, _BRIEF_ENDS = 20.0, 3


def serve_data(workers: int, port: int) -> None:
    """Runs a tf.data service with so many workers until SIGINT or SIGTERM; says its address.

    port: of its dispatcher on this machine, 0 for any that is free. A server that dies is started
    again. UsageError for a port that is in use, RunError when a server cannot be started. No server
    is left running, however this process ends.
    """
    if port and _in_use(port):
        raise UsageError(f"--port={port}: in use; choose another, or leave it out for a free one")
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(asked_to_stop())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        journal = str(folder / "journal")
        dispatcher = Server("dispatcher", folder, "data_dispatcher", str(port), journal)
        stack.enter_context(dispatcher.running())
        address = dispatcher.address()
        dispatcher.arguments[1] = address.rpartition(":")[2]  # the same when it starts again
        names = [f"worker {number}" for number in range(1, workers + 1)]
        servers = [Server(name, folder, "data_worker", address) for name in names]
        for server in servers:
            stack.enter_context(server.running())
        for server in servers:
            server.address()
        print(
            f"tf.data service with {', '.join(names)}; Ctrl-C ends it. Train with:\n"
            f"--data_service={address} --cache=none",
            flush=True,
        )
        while not stop.wait(_WATCH_SECONDS):
            for server in (dispatcher, *servers):
                server.revive()


class Server:
    """A process of `app.training.server`. name: for messages; folder: for what it prints."""

    def __init__(self, name: str, folder: Path, *arguments: str):
        self.name, self.arguments = name, list(arguments)
        self._log = folder / f"{name}.log"
        self._brief = 0

    @contextlib.contextmanager
    def running(self) -> Iterator[Server]:
        """Starts it, and ends it with the block."""
        self._start()
        try:
            yield self
        finally:
            self._process.kill()
            self._process.wait()

    def address(self) -> str:
        """Its HOST:PORT, when it is ready. RunError if it ends before."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise RunError(f"{self.name} could not be started: {self._ended()}")
        return line

    def revive(self) -> None:
        """Starts it again if it has ended. RunError if it keeps ending."""
        if self._process.poll() is None:
            return
        brief = time.monotonic() - self._started < _BRIEF_SECONDS
        self._brief = self._brief + 1 if brief else 1
        reason = self._ended()
        if self._brief == _BRIEF_ENDS:
            raise RunError(f"{self.name} keeps ending: {reason}")
        logging.warning("%s ended (%s); starting it again", self.name, reason)
        self._start()

    def _start(self) -> None:
        self._started = time.monotonic()
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "app.training.server", *self.arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C in a terminal is for this process only
                env={"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ},
            )

    def _ended(self) -> str:
        code = self._process.wait()
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return f"signal {-code}" if code < 0 else lines[-1] if lines else f"exit code {code}"


def _in_use(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # unless somebody listens
        try:
            probe.bind(("", port))
        except OSError:
            return True
    return False
