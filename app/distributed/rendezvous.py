"""Bring the processes of a run together, and check that all of them were started alike.

The chief writes a note to the workdir (see `chief_note`) and listens at its address, which the
server of TensorFlow takes over later. Each other process connects, compares itself with the note,
reports the result, and waits for the answer. The chief answers when all are there, so all processes
end with the same message. The start of TensorFlow's servers cannot be interrupted and does not name
missing processes, so workers in step meet before it.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from absl import logging

from ..errors import RunError, UsageError
from ..settings import Config
from ..system import ports
from . import chief_note
from .cluster_spec import Hosts, Task, host_and_port
from .liveness import connect

_PAUSE_SECONDS = 0.2  # between two attempts
_REPORT_SECONDS = 5.0  # of waiting; processes that are started together wait less
_MESSAGE_SECONDS = 5.0  # for a connection, and for a message that is under way
_PROBE_SECONDS = 2.0  # for a connection, which takes milliseconds
# Seconds between two probes of a chief that is there, and the number of failed probes in a row
# after which it counts as gone. The network may fail for a moment.
_WATCH_SECONDS, _MISSED_PROBES = 1.0, 3
_MESSAGE_BYTES = 1 << 20  # the longest message
_BUSY = b"\0\0"  # the first bytes of a server of TensorFlow: the length of an HTTP/2 frame
_ERRORS = {"failed": RunError, "refused": UsageError}


def meet(config: Config, hosts: Hosts) -> None:
    """Wait until every process of the run has called this function.

    A process that is started again may find a chief that still trains. A worker in step waits
    without limit until that chief notices the loss and starts again, too. A process of
    --strategy=parameter_server joins the training at once.

    Args:
        config: The settings of the run.
        hosts: The processes of the run.

    Raises:
        RunError: Processes did not arrive within --cluster_timeout; the message names them.
        UsageError: A process differs from the chief, or the workdir cannot be written.
    """
    (_receive_all if hosts.is_chief else _report_to_chief)(config, hosts)


def check_own_address(hosts: Hosts, seconds: float) -> None:
    """Check that this process can listen at the address that TF_CONFIG gives it.

    Args:
        hosts: The processes of the run.
        seconds: The longest time to wait until the name of the host is known. The name of a pod
            that has just started may not be known yet.

    Raises:
        UsageError: The port is taken, or the address is unknown or that of another machine.
    """
    host, port = host_and_port(hosts.address)
    prefix = f"TF_CONFIG names {hosts.address} for this process ({hosts.kind} {hosts.index})"
    if reason := ports.taken(port):
        raise UsageError(
            f"{prefix}, and port {port} cannot be used: {reason}; end the process that listens "
            "there, or give every process another address"
        )
    deadline, is_logged = time.monotonic() + seconds, False
    while not (addresses := _resolve(host, port)):
        if time.monotonic() >= deadline:
            raise UsageError(f"{prefix}, and no machine of that name is known; correct the address")
        if not is_logged:
            logging.info("%s: waiting until this name is known", prefix)
            is_logged = True
        time.sleep(_PAUSE_SECONDS)
    is_own = any(not ports.taken(port, address) for address in addresses)
    if not is_own and not ports.leads_here(host, port, _PROBE_SECONDS):
        raise UsageError(
            f'{prefix}, and that is another machine; correct "task", or start this process there'
        )


def wait_for_end_of_chief(
    hosts: Hosts, seconds: float = 0.0, is_stopping: Callable[[], bool] = lambda: False
) -> None:
    """Wait until the chief that listens now does not listen at its address any more.

    It has to fail to answer three times in a row, a second apart. A chief that was started again at
    once listens at the same port; its greeting tells that it is new.

    Args:
        hosts: The processes of the run.
        seconds: The time that a chief that does not listen yet has to start its server, at least
            three seconds.
        is_stopping: Is called every second; True ends the wait early.
    """
    left = max(_MISSED_PROBES, round(seconds / _WATCH_SECONDS))
    while left and not is_stopping():
        time.sleep(_WATCH_SECONDS)
        try:
            with connect(hosts.address_of(*hosts.chief), _PROBE_SECONDS) as connection:
                is_new = "start" in _receive(connection, _PROBE_SECONDS)
        except OSError:
            left -= 1
        else:
            left = 0 if is_new else _MISSED_PROBES


def _resolve(host: str, port: int) -> set[Any]:
    """Return the IP addresses of a host as texts; an empty set if its name is not known."""
    try:
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return set()
    return {str(address[0]) for *_, address in entries}


def _receive_all(config: Config, hosts: Hosts) -> None:
    """Write the note, wait for a report from each other process, then answer all of them.

    A process that is gone before the answer must report again.

    Raises:
        RunError: Processes did not arrive within --cluster_timeout.
        UsageError: A process differs from the chief, or the workdir cannot be written.
    """
    wait = _Wait(hosts, config.run.cluster_timeout)
    greeting = {"start": chief_note.write_note(config, hosts)}
    reports: dict[socket.socket, Mapping[str, Any]] = {}  # empty before the report has arrived
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ports.server(host_and_port(hosts.address)[1]))
        while absent := _absent(hosts, reports.values()):
            if wait.is_over(absent):
                answer = {"failed": wait.message(absent)}
                break
            for connection in select.select([server, *reports], [], [], _PAUSE_SECONDS)[0]:
                if connection is server:
                    connection = stack.enter_context(server.accept()[0])
                    _send(connection, greeting)
                    reports[connection] = {}
                elif report := _receive(connection, _MESSAGE_SECONDS):
                    reports[connection] = report
                else:  # the process has ended
                    del reports[connection]
                    connection.close()
        else:
            refused = [report["refused"] for report in reports.values() if report.get("refused")]
            answer = {"refused": min(refused)} if refused else {"go": ""}
        for connection in reports:
            _send(connection, answer)
    _raise_error(answer)


def _absent(hosts: Hosts, reports: Iterable[Mapping[str, Any]]) -> list[Task]:
    """Return the processes other than this one that have not reported."""
    present = [report.get("task") for report in reports]
    return [task for task in hosts.others if list(task) not in present]


def _report_to_chief(config: Config, hosts: Hosts) -> None:
    """Report to the chief, again and again until it has answered.

    If the chief trains already, a worker in step waits without limit. A process of
    --strategy=parameter_server compares itself with the note and goes on.

    Raises:
        RunError: The chief or another process did not arrive within --cluster_timeout.
        UsageError: A process differs from the chief.
    """
    wait = _Wait(hosts, config.run.cluster_timeout)
    is_asynchronous = config.run.strategy == "parameter_server"
    while True:
        answer = _ask(config, hosts)
        if "busy" in answer and is_asynchronous:
            refused = chief_note.difference(config, hosts, None)
            answer = {"refused": refused} if refused else {"go": ""}
        _raise_error(answer)
        if "go" in answer:
            return
        if wait.is_over([hosts.chief]) and "busy" not in answer:
            raise RunError(wait.message([hosts.chief]))
        time.sleep(_PAUSE_SECONDS)


def _ask(config: Config, hosts: Hosts) -> Mapping[str, Any]:
    """Compare this process with the chief's note, report, and return the answer of the chief.

    The answer has the field `go`, `failed` or `refused`. It has `busy` if a server of TensorFlow
    listens at the chief's address, and is empty if nobody listens or the connection is lost.
    """
    # The chief answers within --cluster_timeout. The limit is for a connection that is lost.
    seconds = config.run.cluster_timeout + _MESSAGE_SECONDS
    try:
        connection = connect(hosts.address_of(*hosts.chief), _MESSAGE_SECONDS)
    except OSError:
        return {}
    with connection:
        greeting = _receive(connection, seconds)
        if "start" not in greeting:
            return {"busy": ""} if "busy" in greeting else {}
        refused = chief_note.difference(config, hosts, greeting["start"])
        _send(connection, {"task": hosts.task, "refused": refused})
        return _receive(connection, seconds)


def _raise_error(answer: Mapping[str, Any]) -> None:
    """Raise a RunError for the answer `failed`, a UsageError for `refused`, and else nothing."""
    for kind, error in _ERRORS.items():
        if kind in answer:
            raise error(answer[kind])


def _send(connection: socket.socket, message: Mapping[str, Any]) -> None:
    """Send a message as a line of JSON; ignore an error of the connection."""
    with contextlib.suppress(OSError):  # the other process has ended, which reading shows as well
        connection.sendall(json.dumps(message).encode() + b"\n")


def _receive(connection: socket.socket, seconds: float) -> dict[str, Any]:
    """Wait for a message, a line of JSON, and return it.

    Return {"busy": ""} if a server of TensorFlow sends. Return {} if the connection ends, the line
    is not complete after `seconds`, or it is too long or no JSON object.
    """
    deadline, line = time.monotonic() + seconds, b""
    with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
        while not line.endswith(b"\n") and len(line) <= _MESSAGE_BYTES:
            left = deadline - time.monotonic()
            if left <= 0:
                return {}
            connection.settimeout(left)
            block = connection.recv(1 << 16)
            line += block
            if line.startswith(_BUSY):
                return {"busy": ""}
            if not block:
                return {}
        return dict(json.loads(line))
    return {}


class _Wait:
    """A wait for other processes, which is logged once if it takes long."""

    def __init__(self, hosts: Hosts, seconds: float):
        self._hosts, self._seconds = hosts, seconds
        self._start, self._is_logged = time.monotonic(), False

    def is_over(self, absent: Sequence[Task]) -> bool:
        """Return whether --cluster_timeout has passed; after 5 s, log the absent processes once."""
        waited = time.monotonic() - self._start
        if waited >= _REPORT_SECONDS and not self._is_logged:
            logging.info("waiting for %s", self._hosts.names(absent))
            self._is_logged = True
        return waited >= self._seconds

    def message(self, absent: Sequence[Task]) -> str:
        """Return the message of a run that ends because processes did not arrive."""
        pronoun = "it" if len(absent) == 1 else "them"
        return (
            f"{self._hosts.names(absent)} did not arrive within --cluster_timeout="
            f"{self._seconds:g} s; start {pronoun} with the same flags, or give a longer "
            "--cluster_timeout"
        )
