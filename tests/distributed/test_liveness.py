"""Which processes are there, and which errors say that one is not."""

from __future__ import annotations

import socket

import pytest
import tensorflow as tf

from app.distributed import liveness
from app.distributed.cluster_spec import Hosts
from app.system import ports
from tests.processes import listening


def hosts_at(*found, index=0):
    return Hosts({"worker": tuple(f"127.0.0.1:{port}" for port in found)}, "worker", index)


def test_free_ports_are_free_and_differ():
    found = ports.free(50)
    assert len(set(found)) == 50 and not any(map(ports.taken, found))


def test_one_that_listens_is_there():
    own, other = ports.free(2)
    hosts = hosts_at(own, other)
    address = hosts.address_of("worker", 1)
    assert not liveness.is_listening(address)
    assert liveness.missing(hosts, hosts.others) == [("worker", 1)]
    with listening(other):
        assert all(liveness.is_listening(address) for _ in range(300))  # more than a queue holds
        assert liveness.missing(hosts, hosts.everyone) == [("worker", 0)]
        assert ports.taken(other) == "Address already in use"
    assert not ports.taken(other)


def test_a_port_that_is_connected_to_itself_is_nobody():
    with socket.socket() as alone:
        alone.bind(("127.0.0.1", 0))
        alone.connect(alone.getsockname())

        class Itself:
            def create_connection(self, *_, **__):
                return alone

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(socket, "create_connection", Itself().create_connection)
            assert not liveness.is_listening("127.0.0.1:1")


@pytest.mark.parametrize(
    ("error", "text", "expected"),
    [
        (tf.errors.UnavailableError, "", True),
        (tf.errors.AbortedError, "", True),
        (tf.errors.InvalidArgumentError, "Unable to find a context_id matching the one", True),
        (tf.errors.InvalidArgumentError, "shapes differ", False),
        (tf.errors.UnknownError, "UnavailableError", False),
    ],
)
def test_errors_are_recognized_by_their_types(error, text, expected):
    assert liveness.is_lost_process_error(error(None, None, text)) == expected
