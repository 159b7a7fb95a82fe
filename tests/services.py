"""A tf.data service of real processes, for tests to kill."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pathlib
from collections.abc import Iterator
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from unittest import mock

from app.distributed import data_server
from tests.integration.commands import SECONDS


class Service:
    """A dispatcher and its workers. address: HOST:PORT; workers, dispatcher: processes."""

    def __init__(self, folder: pathlib.Path, workers: int):
        self._kept: list[Connection] = []
        self.dispatcher, self.address = self._started("data_dispatcher", "0", str(folder))
        self.workers = [self.work() for _ in range(workers)]

    def work(self):
        """Starts one more worker."""
        return self._started("data_worker", self.address)[0]

    def end(self) -> None:
        """Kills them all."""
        for process in (self.dispatcher, *self.workers):
            process.kill()
            process.join()

    def _started(self, *arguments: str):
        # As the commands, from the server that has TensorFlow imported.
        with mock.patch.dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3"):
            forkserver.ensure_running()
        context = multiprocessing.get_context("forkserver")
        connection, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, *arguments), daemon=True)
        process.start()
        theirs.close()
        assert connection.poll(SECONDS)
        self._kept.append(connection)
        return process, connection.recv()


@contextlib.contextmanager
def running(folder: pathlib.Path, workers: int = 2) -> Iterator[Service]:
    """A service for the length of the block."""
    service = Service(folder / "journal", workers)
    try:
        yield service
    finally:
        service.end()


def _serve(connection: Connection, *arguments: str) -> None:
    kept = data_server.start(*arguments)
    connection.send(kept[1])
    with contextlib.suppress(EOFError):
        connection.recv()
    os._exit(1)  # without the destructors of `kept`, as the server's own process
