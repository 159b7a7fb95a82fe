"""Bring the processes of a run together, and check that all of them were started alike.

Workers of --strategy=multi_worker `meet` before they build anything. The chief listens at its
address, which TensorFlow's server takes over later. Each worker sends its name, and waits until the
chief has heard from all. The start of TensorFlow's servers cannot be interrupted and does not name
missing processes, so it comes after the meeting.

Parameter servers and their workers call `await_all` when their servers are running.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..config import Config
from ..errors import RunError, UsageError
from ..system import ports
from . import liveness, notes
from .cluster_spec import Hosts, Task, host_and_port

_PAUSE_SECONDS = 0.2  # between two attempts, and two checks
_HELLO_SECONDS = 5.0  # for a line that is sent with the connection
_MOST_BYTES = 1 << 20  # of a line
_BUSY = b"\0\0"  # the first bytes of a server of TensorFlow: the length of an HTTP/2 frame


@contextlib.contextmanager
def present(config: Config, hosts: Hosts) -> Iterator[None]:
    """Leave a note of this process for the others; its port has to be opened within the block.

    Args:
        config: The settings of the run.
        hosts: The processes of the run.

    Raises:
        UsageError: This process cannot listen at its address, or cannot write to the workdir.
    """
    liveness.check_own_address(hosts, config.run.cluster_timeout)
    with notes.written(config, hosts):
        yield


def await_all(config: Config, hosts: Hosts) -> None:
    """Wait until all other processes listen, and compare their flags and versions.

    Args:
        config: The settings of the run.
        hosts: The processes of the run.

    Raises:
        RunError: Processes did not arrive within --cluster_timeout; the message names them.
        UsageError: A process differs from the chief; the message names the first one.
    """
    liveness.wait_for(hosts, hosts.others, config.run.cluster_timeout)
    notes.check(config, hosts)


def meet(hosts: Hosts, seconds: float, check: Callable[[], None]) -> None:
    """Wait until every process of the run has called this function.

    Args:
        hosts: The processes of the run.
        seconds: The --cluster_timeout. A chief that is still busy with an earlier run is waited for
            without limit.
        check: Called by the chief when all are there. Its UsageError is raised in every process.

    Raises:
        RunError: Processes did not arrive in time; the message names them.
        UsageError: See `check`.
    """
    if hosts.is_chief:
        _receive_all(hosts, seconds, check)
    else:
        _report_to_chief(hosts, seconds)


def _receive_all(hosts: Hosts, seconds: float, check: Callable[[], None]) -> None:
    """Wait for a connection from each other process, then answer all of them."""
    wait = liveness.Wait(hosts)
    connections: dict[Task, socket.socket] = {}
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ports.server(host_and_port(hosts.address)[1]))
        while absent := [task for task in hosts.others if task not in connections]:
            if wait.elapsed(absent) >= seconds:
                message = liveness.late_message(hosts, absent, seconds)
                _answer(connections, {"failed": message})
                raise RunError(message)
            if select.select([server], [], [], _PAUSE_SECONDS)[0]:
                connection = stack.enter_context(server.accept()[0])
                with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
                    kind, index = _read(connection, _HELLO_SECONDS)["task"]
                    connections[kind, index] = connection
            for task in [task for task, open_ in connections.items() if _is_closed(open_)]:
                del connections[task]
        try:
            check()
        except UsageError as error:
            _answer(connections, {"refused": str(error)})
            raise
        _answer(connections, {"go": True})


def _report_to_chief(hosts: Hosts, seconds: float) -> None:
    """Send the name of this process to the chief until the chief has answered."""
    wait = liveness.Wait(hosts)
    while True:
        waited = wait.elapsed([hosts.chief])
        answer = _ask(host_and_port(hosts.address_of(*hosts.chief)), hosts.task, seconds)
        if "go" in answer:
            return
        if "failed" in answer:
            raise RunError(answer["failed"])
        if "refused" in answer:
            raise UsageError(answer["refused"])
        if waited >= seconds and "busy" not in answer:
            raise RunError(liveness.late_message(hosts, [hosts.chief], seconds))
        time.sleep(_PAUSE_SECONDS)


def _ask(chief: tuple[str, int], task: Task, seconds: float) -> dict[str, Any]:
    """Return the chief's answer: `busy` if it still runs a server, empty if it is not there."""
    try:
        with socket.create_connection(chief, _HELLO_SECONDS) as connection:
            if connection.getsockname() == connection.getpeername():  # a port connected to itself
                return {}
            connection.sendall(json.dumps({"task": task}).encode() + b"\n")
            # The chief answers after `seconds` at the latest. The limit is for a lost connection.
            return _read(connection, seconds + _HELLO_SECONDS)
    except (OSError, ValueError):
        return {}


def _read(connection: socket.socket, seconds: float) -> dict[str, Any]:
    """Read a line of JSON; raise ValueError or OSError if there is none."""
    connection.settimeout(seconds)
    line = b""
    while not line.endswith(b"\n"):
        block = connection.recv(1 << 16)
        line += block
        if line.startswith(_BUSY):
            return {"busy": True}
        if not block or len(line) > _MOST_BYTES:
            raise ValueError
    return dict(json.loads(line))


def _answer(connections: Mapping[Task, socket.socket], answer: Mapping[str, Any]) -> None:
    for connection in connections.values():
        with contextlib.suppress(OSError):
            connection.sendall(json.dumps(answer).encode() + b"\n")


def _is_closed(connection: socket.socket) -> bool:
    """Return whether the other side has closed a connection on which it has no more to send."""
    if not select.select([connection], [], [], 0)[0]:
        return False
    with contextlib.suppress(OSError):
        return not connection.recv(1)
    return True
