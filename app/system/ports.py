"""Ports of this machine."""

from __future__ import annotations

import contextlib
import random
import secrets
import socket

# Below those that Linux gives to outgoing connections (net.ipv4.ip_local_port_range, 32768 to
# 60999): one that asks for a server while that is away could be given the server's very port.
_FREE = range(20_000, 32_768)


def taken(port: int, host: str = "") -> str:
    """Why no server can be started at a port, such as `Address already in use`; empty if it can.

    host: the address of this machine to look at; by default all that it has.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # unless somebody listens
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.strerror or str(error)
    return ""


def free(count: int) -> list[int]:
    """So many ports at which nobody listens."""
    shuffled = random.SystemRandom().sample(_FREE, len(_FREE))
    found = [port for _, port in zip(range(count), filter(_is_free, shuffled), strict=False)]
    assert len(found) == count
    return found


def leads_here(host: str, port: int, seconds: float) -> bool:
    """Whether what is sent to the address arrives here, as by a translation of addresses."""
    token = secrets.token_bytes(16)
    with contextlib.suppress(OSError), server(port) as listener:
        listener.settimeout(seconds)
        with socket.create_connection((host, port), seconds) as client:
            client.sendall(token)
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(seconds)
                return connection.recv(len(token)) == token
    return False


def server(port: int) -> socket.socket:
    """A socket that listens at a port, of all addresses of this machine."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def _is_free(port: int) -> bool:
    return not taken(port)
