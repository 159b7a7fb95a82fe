"""Workers meet before they build anything: all are there, and all were started alike.

The chief listens at its address, where TensorFlow's server is to be after that; each worker says
who it is, and waits until the chief has heard everyone. What starts
TensorFlow's servers cannot be interrupted, and does not tell who is missing; this does.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from absl import logging

from ..errors import RunError, UsageError
from ..system import ports
from . import arrivals
from .cluster_spec import Hosts, Task, host_and_port

_PAUSE_SECONDS = 0.2  # between two attempts, and two looks
_SAY_AFTER_SECONDS = 5.0  # of waiting: longer than processes take that start together
_HELLO_SECONDS = 5.0  # for a line that is sent with the connection
_MOST_BYTES = 1 << 20  # of a line
_BUSY = b"\0\0"  # what a server of TensorFlow begins with: the length of an HTTP/2 frame


def meet(hosts: Hosts, seconds: float, check: Callable[[], None]) -> None:
    """Returns once every process of the run has called this.

    seconds: the --cluster_timeout; a chief that is still busy with what was before is waited for
    without end. check: called by the chief when all are there; its UsageError is that of everyone.
    RunError that names who is missing.
    """
    if hosts.is_chief:
        _receive(hosts, seconds, check)
    else:
        _go_there(hosts, seconds)


def _receive(hosts: Hosts, seconds: float, check: Callable[[], None]) -> None:
    """The chief's part."""
    start, said = time.monotonic(), False
    here: dict[Task, socket.socket] = {}
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ports.server(host_and_port(hosts.address)[1]))
        while absent := [task for task in hosts.others if task not in here]:
            waited = time.monotonic() - start
            if waited >= seconds:
                message = arrivals.late(hosts, absent, seconds)
                _answer(here, {"failed": message})
                raise RunError(message)
            if waited >= _SAY_AFTER_SECONDS and not said:
                logging.info("waiting for %s", arrivals.names(hosts, absent))
                said = True
            if select.select([server], [], [], _PAUSE_SECONDS)[0]:
                connection = stack.enter_context(server.accept()[0])
                with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
                    kind, index = _read(connection, _HELLO_SECONDS)["task"]
                    here[kind, index] = connection
            for task in [task for task, connection in here.items() if _is_over(connection)]:
                del here[task]
        try:
            check()
        except UsageError as error:
            _answer(here, {"refused": str(error)})
            raise
        _answer(here, {"go": True})


def _go_there(hosts: Hosts, seconds: float) -> None:
    """The part of everyone else."""
    start, said = time.monotonic(), False
    while True:
        waited = time.monotonic() - start
        answer = _asked(host_and_port(hosts.address_of(*hosts.chief)), hosts.task, seconds)
        if "go" in answer:
            return
        if "failed" in answer:
            raise RunError(answer["failed"])
        if "refused" in answer:
            raise UsageError(answer["refused"])
        if waited >= seconds and "busy" not in answer:
            raise RunError(arrivals.late(hosts, [hosts.chief], seconds))
        if waited >= _SAY_AFTER_SECONDS and not said:
            logging.info("waiting for %s", arrivals.names(hosts, [hosts.chief]))
            said = True
        time.sleep(_PAUSE_SECONDS)


def _asked(chief: tuple[str, int], task: Task, seconds: float) -> dict[str, Any]:
    """What the chief answers; `busy` if it runs a server still, and nothing if it is not there."""
    try:
        with socket.create_connection(chief, _HELLO_SECONDS) as connection:
            if connection.getsockname() == connection.getpeername():  # a port connected to itself
                return {}
            connection.sendall(json.dumps({"task": task}).encode() + b"\n")
            # The chief gives up by itself, and tells; this is for one that is cut off.
            return _read(connection, seconds + _HELLO_SECONDS)
    except (OSError, ValueError):
        return {}


def _read(connection: socket.socket, seconds: float) -> dict[str, Any]:
    """A line of JSON. ValueError or OSError if something else comes, or nothing."""
    connection.settimeout(seconds)
    line = b""
    while not line.endswith(b"\n"):
        part = connection.recv(1 << 16)
        line += part
        if line.startswith(_BUSY):
            return {"busy": True}
        if not part or len(line) > _MOST_BYTES:
            raise ValueError
    return dict(json.loads(line))


def _answer(here: Mapping[Task, socket.socket], answer: Mapping[str, Any]) -> None:
    for connection in here.values():
        with contextlib.suppress(OSError):
            connection.sendall(json.dumps(answer).encode() + b"\n")


def _is_over(connection: socket.socket) -> bool:
    """Whether the other side is gone; after its first line it is to say nothing."""
    if not select.select([connection], [], [], 0)[0]:
        return False
    with contextlib.suppress(OSError):
        return not connection.recv(1)
    return True
