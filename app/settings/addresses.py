"""The check of a network address."""

from __future__ import annotations

import re

# A host name, an IPv4 address, or an IPv6 address in brackets; then a port.
_ADDRESS = re.compile(r"(?P<host>[\w.-]+|\[[0-9a-fA-F:.]+\]):(?P<port>[0-9]{1,5})", re.ASCII)


def is_address(text: str) -> bool:
    """Return whether a text is HOST:PORT, with a port from 1 to 65535; look up no host.

    HOST is a name, an IPv4 address, or an IPv6 address in brackets.
    """
    match = _ADDRESS.fullmatch(text)
    return match is not None and 0 < int(match["port"]) < 2**16
