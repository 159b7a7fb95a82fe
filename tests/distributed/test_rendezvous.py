"""Workers wait for one another, and hear the same end."""

from __future__ import annotations

import concurrent.futures
import contextlib
import socket
import time

import pytest

from app.distributed import rendezvous
from app.distributed.cluster_spec import Hosts
from app.errors import RunError, UsageError
from app.system import ports

SECONDS = 60.0


def make_hosts(count):
    tasks = {"worker": tuple(f"127.0.0.1:{port}" for port in ports.free(count))}
    return [Hosts(tasks, "worker", index) for index in range(count)]


@pytest.fixture
def pool():
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        yield pool


def nothing():
    """All is as it should be."""


@pytest.mark.parametrize("late", [0, 1])
def test_all_go_when_the_last_is_there(pool, late):
    hosts = make_hosts(3)
    early = [one for one in hosts if one.index != late]
    waiting = [pool.submit(rendezvous.meet, one, SECONDS, nothing) for one in early]
    time.sleep(0.3)
    assert not any(one.done() for one in waiting)
    rendezvous.meet(hosts[late], SECONDS, nothing)
    for one in waiting:
        one.result(SECONDS)
    assert not ports.taken(int(hosts[0].address.rpartition(":")[2]))


def test_who_is_missing_is_named_by_all_that_are_there(pool):
    chief, here, _ = make_hosts(3)
    there = pool.submit(rendezvous.meet, here, SECONDS, nothing)
    with pytest.raises(RunError, match="^worker 2 .* did not arrive within --cluster_timeout=1 s"):
        rendezvous.meet(chief, 1.0, nothing)
    with pytest.raises(RunError, match="^worker 2 .* did not arrive"):
        there.result(SECONDS)


def test_a_chief_that_does_not_come_is_named():
    _, worker = make_hosts(2)
    with pytest.raises(RunError, match=r"^worker 0 \(127.0.0.1:[0-9]+\) did not arrive"):
        rendezvous.meet(worker, 0.5, nothing)


def test_a_difference_that_the_chief_finds_is_told_to_all(pool):
    def check():
        raise UsageError("worker 1 has --dim=8 and the chief 9")

    chief, worker = make_hosts(2)
    there = pool.submit(rendezvous.meet, worker, SECONDS, check)
    for end in (lambda: rendezvous.meet(chief, SECONDS, check), lambda: there.result(SECONDS)):
        with pytest.raises(UsageError, match="--dim=8"):
            end()


def test_a_worker_that_leaves_is_waited_for_again(pool):
    chief, worker, other = make_hosts(3)
    waiting = pool.submit(rendezvous.meet, chief, SECONDS, nothing)
    address = ("127.0.0.1", int(chief.address.rpartition(":")[2]))
    for said in (b'{"task": ["worker", 1]}', b"GET / HTTP/1.0\n", b'{"task": ["worker", 1]}\n'):
        gone = None
        while gone is None:  # until the chief listens
            with contextlib.suppress(OSError):
                gone = socket.create_connection(address)
        with gone:
            gone.sendall(said)
    third = pool.submit(rendezvous.meet, other, SECONDS, nothing)
    time.sleep(0.5)
    assert not waiting.done() and not third.done()
    rendezvous.meet(worker, SECONDS, nothing)
    waiting.result(SECONDS)
    third.result(SECONDS)


def test_a_chief_that_is_busy_with_the_run_before_is_waited_for(pool):
    """Longer than for one that is not there at all."""
    chief, worker = make_hosts(2)
    with socket.create_server(("127.0.0.1", int(chief.address.rpartition(":")[2]))) as server:
        waiting = pool.submit(rendezvous.meet, worker, 0.1, nothing)
        for _ in range(4):
            connection, _ = server.accept()
            connection.sendall(b"\0\0\x06\x04\0\0\0\0\0")  # HTTP/2, as gRPC greets
            connection.close()
        assert not waiting.done()
    rendezvous.meet(chief, SECONDS, nothing)
    waiting.result(SECONDS)
