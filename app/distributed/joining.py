"""How a process joins a distributed run: its own address, its note, then the others."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ..config import Config
from . import arrivals, notes
from .cluster_spec import Hosts


@contextlib.contextmanager
def present(config: Config, hosts: Hosts) -> Iterator[None]:
    """Leaves a note of this process; its port is to be opened within the block.

    UsageError where it cannot serve at its address, or cannot write to the workdir.
    """
    arrivals.check_own(hosts, config.run.cluster_timeout)
    with notes.left(config, hosts):
        yield


def await_all(config: Config, hosts: Hosts) -> None:
    """Returns when all others have opened their ports, and have the same flags and versions.

    RunError that names those that do not arrive within --cluster_timeout, UsageError for the first
    one that differs from the chief.
    """
    arrivals.wait_for(hosts, hosts.others, config.run.cluster_timeout)
    notes.check(config, hosts)
