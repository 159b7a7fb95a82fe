"""Network ports of this machine."""

from __future__ import annotations

import itertools
import random
import socket

# These are below the ports that Linux gives to outgoing connections (net.ipv4.ip_local_port_range,
# 32768 to 60999). Otherwise a connection to a server that is away could get the server's own port.
_FREE = range(20_000, 32_768)


def taken(port: int, host: str = "") -> str:
    """Return the reason why no server can listen at a port, or "" if one can.

    Args:
        host: An address of this machine; by default all its addresses.

    Returns:
        The message of the system, such as "Address already in use". Only a try shows whether a
        server can listen; the port is free again afterwards.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ignore closed connections
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.strerror or str(error)
    return ""


def free(count: int) -> list[int]:
    """Return random ports from 20,000 to 32,767 at which no server listens now.

    They are not reserved: another process can take them.

    Args:
        count: The number of ports; an AssertionError is raised if fewer are free.
    """
    shuffled = random.SystemRandom().sample(_FREE, len(_FREE))
    chosen = list(itertools.islice((port for port in shuffled if not taken(port)), count))
    assert len(chosen) == count
    return chosen
