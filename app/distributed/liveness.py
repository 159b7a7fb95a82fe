"""Check which processes of a run are there: a process is there while it listens at its address."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Sequence

from absl import logging

from ..errors import RunError, UsageError
from ..system import ports
from .cluster_spec import Hosts, Task, host_and_port

_PROBE_SECONDS = 2.0  # for a connection, which takes milliseconds
_PAUSE_SECONDS = 0.2  # between two probes
_REPORT_SECONDS = 5.0  # of waiting; processes that are started together wait less
# Seconds between two probes of a chief that is there, and the number of failed probes in a row
# after which it counts as gone. The network may fail for a moment.
_WATCH_SECONDS, _MISSED_PROBES = 1.0, 3


class Wait:
    """A wait for other processes, which is logged once if it takes long."""

    def __init__(self, hosts: Hosts):
        self._hosts, self._start, self._is_logged = hosts, time.monotonic(), False

    def elapsed(self, absent: Iterable[Task]) -> float:
        """Return the seconds since the start, and log the absent processes once if it takes long.

        Args:
            absent: The processes that are waited for.

        Returns:
            Seconds.
        """
        seconds = time.monotonic() - self._start
        if seconds >= _REPORT_SECONDS and not self._is_logged:
            logging.info("waiting for %s", names(self._hosts, absent))
            self._is_logged = True
        return seconds


def is_listening(address: str, seconds: float = _PROBE_SECONDS) -> bool:
    """Return whether a process accepts connections at an address.

    Args:
        address: HOST:PORT.
        seconds: The longest time to wait for the connection.

    Returns:
        Whether the connection was accepted in time.
    """
    try:
        with socket.create_connection(host_and_port(address), timeout=seconds) as connection:
            # Linux may choose the port itself as the source of the connection, which then is
            # connected to itself.
            return connection.getsockname() != connection.getpeername()
    except OSError:
        return False


def missing(hosts: Hosts, tasks: Iterable[Task], seconds: float) -> list[Task]:
    """Wait until processes listen, and return those that do not within the given time.

    Args:
        hosts: The processes of the run.
        tasks: The processes to wait for.
        seconds: The longest time to wait; 0 probes each process once.

    Returns:
        The missing processes, in the order of `tasks`.
    """
    wait, absent = Wait(hosts), list(tasks)
    while absent := [task for task in absent if not is_listening(hosts.address_of(*task))]:
        if wait.elapsed(absent) >= seconds:
            break
        time.sleep(_PAUSE_SECONDS)
    return absent


def wait_for(hosts: Hosts, tasks: Iterable[Task], seconds: float) -> None:
    """Wait until all of these processes listen.

    Args:
        hosts: The processes of the run.
        tasks: The processes to wait for.
        seconds: The --cluster_timeout.

    Raises:
        RunError: Some did not listen in time; the message names them.
    """
    absent = missing(hosts, tasks, seconds)
    if absent:
        raise RunError(late_message(hosts, absent, seconds))


def wait_for_end_of_chief(hosts: Hosts, is_stopping: Callable[[], bool] = lambda: False) -> None:
    """Wait until the chief's process has ended, which closes its port.

    Args:
        hosts: The processes of the run.
        is_stopping: Ends the wait early once it returns True.
    """
    missed = 0
    while missed < _MISSED_PROBES and not is_stopping():
        time.sleep(_WATCH_SECONDS)
        missed = 0 if is_listening(hosts.address_of(*hosts.chief)) else missed + 1


def late_message(hosts: Hosts, absent: Sequence[Task], seconds: float) -> str:
    """Return the message of a run that ends because processes did not arrive.

    Args:
        hosts: The processes of the run.
        absent: The processes that did not arrive.
        seconds: The --cluster_timeout.

    Returns:
        One line.
    """
    pronoun = "it" if len(absent) == 1 else "them"
    return (
        f"{names(hosts, absent)} did not arrive within --cluster_timeout={seconds:g} s; start "
        f"{pronoun} with the same flags, or give a longer --cluster_timeout"
    )


def names(hosts: Hosts, tasks: Iterable[Task]) -> str:
    """Return the names of processes for a message, separated by commas.

    Args:
        hosts: The processes of the run.
        tasks: The processes to name.

    Returns:
        Text such as `worker 0 (10.0.0.1:2222), worker 1 (10.0.0.2:2222)`.
    """
    return ", ".join(hosts.name(*task) for task in tasks)


def check_own_address(hosts: Hosts, seconds: float = 0.0) -> None:
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
    reason = ports.taken(port)
    if reason:
        raise UsageError(
            f"{prefix}, and port {port} cannot be used: {reason}; end the process that listens "
            "there, or give every process another address"
        )
    deadline = time.monotonic() + seconds
    is_own = _is_own(host, port)
    if is_own is None and seconds:
        logging.info("%s: waiting until this name is known", prefix)
    while is_own is None and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
        is_own = _is_own(host, port)
    if is_own is None:
        raise UsageError(f"{prefix}, and no machine of that name is known; correct the address")
    if not is_own:
        raise UsageError(
            f'{prefix}, and that is another machine; correct "task", or start this process there'
        )


def _is_own(host: str, port: int) -> bool | None:
    """Return whether an address is that of this machine; None if its name is not known."""
    try:
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return None
    addresses = {str(entry[4][0]) for entry in entries}
    return any(not ports.taken(port, address) for address in addresses) or ports.leads_here(
        host, port, _PROBE_SECONDS
    )
