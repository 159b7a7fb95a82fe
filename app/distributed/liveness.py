"""Recognize processes that are lost: by their port, and by the errors of TensorFlow.

A process is there while it listens at its address. An error of TensorFlow says that a process is
lost, but does not name it. And a process that only waits for the chief gets no error. So both ways
are needed.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterable

import tensorflow as tf
from absl import logging

from .cluster_spec import Hosts, Task, host_and_port

# TensorFlow's errors when another process is gone.
_LOST_PROCESS_ERRORS = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
)
_PROBE_SECONDS = 2.0  # for a connection, which takes milliseconds


def connect(address: str, seconds: float) -> socket.socket:
    """Connect to another process, never to the own port of this connection.

    Args:
        address: HOST:PORT.
        seconds: The longest time to wait for the connection; it stays the timeout of the socket.

    Returns:
        The connection, which the caller closes.

    Raises:
        OSError: No process listens at the address, its host is unknown, or the time is over.
    """
    connection = socket.create_connection(host_and_port(address), timeout=seconds)
    # Linux may choose the port itself as the source of the connection, which then is connected to
    # itself.
    if connection.getsockname() == connection.getpeername():
        connection.close()
        raise ConnectionRefusedError
    return connection


def is_listening(address: str) -> bool:
    """Return whether a process accepts a connection at an address within 2 seconds.

    Args:
        address: HOST:PORT.
    """
    try:
        connect(address, _PROBE_SECONDS).close()
    except OSError:
        return False
    return True


def missing(hosts: Hosts, tasks: Iterable[Task]) -> list[Task]:
    """Return the processes that do not listen at their addresses.

    Args:
        hosts: The processes of the run.
        tasks: The processes to probe.
    """
    return [task for task in tasks if not is_listening(hosts.address_of(*task))]


def is_lost_process_error(error: Exception) -> bool:
    """Return whether TensorFlow raises an error of this type when a process is gone or new.

    A process that was started again does not know its earlier context. TensorFlow has no type for
    this: it raises InvalidArgumentError with the text below (`EagerServiceImpl::GetServerContext`),
    and its own coordinator looks for texts, too (`_is_ps_failure`).

    Args:
        error: The error of an operation.
    """
    is_new_process = isinstance(error, tf.errors.InvalidArgumentError) and (
        "Unable to find a context_id" in error.message
    )
    return is_new_process or isinstance(error, _LOST_PROCESS_ERRORS)


def start_again(lost: str) -> None:
    """Replace this process by a new run of its program with the same arguments; never return.

    A warning names the lost process.

    Args:
        lost: The name of the process.
    """
    logging.warning("%s is gone: starting again to continue from the last checkpoint", lost)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    spec = sys.modules["__main__"].__spec__  # None for a program that was started as a file
    program = [sys.argv[0]] if spec is None else ["-m", spec.name]
    os.execv(sys.executable, [sys.executable, *program, *sys.argv[1:]])
