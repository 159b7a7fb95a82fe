"""Whether the processes of a run are there: each listens at its address, or is to be missed."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Sequence

from absl import logging

from ..errors import RunError, UsageError
from ..system import ports
from .cluster_spec import Hosts, Task, host_and_port

_PROBE_SECONDS = 2.0  # for a connection, which takes milliseconds
_PAUSE_SECONDS = 0.2  # between two looks
_SAY_AFTER_SECONDS = 5.0  # of waiting: longer than processes take that start together
# Between two looks at a chief that is there, and how many in a row it is to miss before it is gone,
# as a network may fail for a moment.
_LOOK_SECONDS, _MISSED = 1.0, 3


def is_listening(address: str, seconds: float = _PROBE_SECONDS) -> bool:
    """Whether somebody takes connections at HOST:PORT, and answers within so many seconds."""
    try:
        with socket.create_connection(host_and_port(address), timeout=seconds) as connection:
            # Linux connects a port to itself, if that is the one it gave to the connection.
            return connection.getsockname() != connection.getpeername()
    except OSError:
        return False


def missing(hosts: Hosts, tasks: Iterable[Task], seconds: float) -> list[Task]:
    """Those of the processes that do not listen within so many seconds, in the order given.

    Says once whom it waits for, if it takes long.
    """
    start, said = time.monotonic(), False
    left = list(tasks)
    while left:
        left = [task for task in left if not is_listening(hosts.address_of(*task))]
        waited = time.monotonic() - start
        if not left or waited >= seconds:
            break
        if waited >= _SAY_AFTER_SECONDS and not said:
            logging.info("waiting for %s", names(hosts, left))
            said = True
        time.sleep(_PAUSE_SECONDS)
    return left


def wait_for(hosts: Hosts, tasks: Iterable[Task], seconds: float) -> None:
    """Returns when all of the processes listen. RunError that names those that do not in time.

    seconds: the --cluster_timeout.
    """
    absent = missing(hosts, tasks, seconds)
    if absent:
        raise RunError(late(hosts, absent, seconds))


def until_gone(hosts: Hosts, is_stopping: Callable[[], bool] = lambda: False) -> None:
    """Returns when the chief's process has ended, as its port is closed then, or when told to."""
    missed = 0
    while missed < _MISSED and not is_stopping():
        time.sleep(_LOOK_SECONDS)
        missed = 0 if is_listening(hosts.address_of(*hosts.chief)) else missed + 1


def late(hosts: Hosts, absent: Sequence[Task], seconds: float) -> str:
    """The message of a run that ends since processes did not arrive.

    seconds: the --cluster_timeout.
    """
    them = "it" if len(absent) == 1 else "them"
    return (
        f"{names(hosts, absent)} did not arrive within --cluster_timeout={seconds:g} s; start "
        f"{them} with the same flags, or give a longer --cluster_timeout"
    )


def names(hosts: Hosts, tasks: Iterable[Task]) -> str:
    """The processes as messages name them, with a comma between two."""
    return ", ".join(hosts.name(*task) for task in tasks)


def check_own(hosts: Hosts, seconds: float = 0.0) -> None:
    """Raises UsageError where this process cannot serve at the address that TF_CONFIG gives it.

    seconds: how long to wait for a name that is not known yet, as that of a pod that has just
    started.
    """
    host, port = host_and_port(hosts.address)
    where = f"TF_CONFIG names {hosts.address} for this process ({hosts.kind} {hosts.index})"
    reason = ports.taken(port)
    if reason:
        raise UsageError(
            f"{where}, and port {port} cannot be had: {reason}; end what listens there, or give "
            "every process another address"
        )
    deadline = time.monotonic() + seconds
    own = _is_own(host, port)
    if own is None and seconds:
        logging.info("%s: waiting for that name to be known", where)
    while own is None and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
        own = _is_own(host, port)
    if own is None:
        raise UsageError(f"{where}, and no machine of that name is known; mend the address")
    if not own:
        raise UsageError(
            f'{where}, and that is another machine; mend "task", or start this process there'
        )


def _is_own(host: str, port: int) -> bool | None:
    """Whether an address leads to this machine; None if its name is not known."""
    try:
        found = {place[4][0] for place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    except OSError:
        return None
    return any(not ports.taken(port, one) for one in found) or ports.leads_here(
        host, port, _PROBE_SECONDS
    )
