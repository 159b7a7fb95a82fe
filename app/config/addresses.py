"""The check of a network address."""

from __future__ import annotations

import re

# A host name, an IPv4 address, or an IPv6 address in brackets; then a port.
_ADDRESS = re.compile(r"(?P<host>[\w.-]+|\[[0-9a-fA-F:.]+\]):(?P<port>[0-9]{1,5})", re.ASCII)


def is_address(text: str) -> bool:
    """Return whether the text is HOST:PORT with a valid port number."""
    match = _ADDRESS.fullmatch(text)
    return match is not None and 0 < int(match["port"]) < 2**16
