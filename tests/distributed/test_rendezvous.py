"""Processes wait for one another, and end with the same message."""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import socket
import time

import pytest
import tensorflow as tf

from app.distributed import chief_note, rendezvous
from app.distributed.cluster_spec import Hosts
from app.errors import RunError, UsageError
from app.settings import Config, RunConfig
from app.system import ports
from tests.processes import listening

BUSY = {"busy": ""}


@pytest.fixture
def pool():
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture
def settings(tmp_path):
    def settings(seconds=60.0, strategy="multi_worker", **run):
        folder = str(tmp_path)
        return Config(
            run=RunConfig(workdir=folder, strategy=strategy, cluster_timeout=seconds, **run)
        )

    return settings


def make_hosts(count):
    tasks = {"worker": tuple(f"127.0.0.1:{port}" for port in ports.free(count))}
    return [Hosts(tasks, "worker", index) for index in range(count)]


def port_of(hosts):
    return int(hosts.address.rpartition(":")[2])


def test_a_message_has_one_deadline_however_slowly_it_comes(pool):
    ours, theirs = socket.socketpair()
    with ours, theirs:

        def trickle():
            for _ in range(30):
                theirs.send(b" ")
                time.sleep(0.1)
            theirs.send(b'{"go": ""}\n')

        sent = pool.submit(trickle)
        assert rendezvous._receive(ours, 0.5) == {}
        sent.result(60)
        assert rendezvous._receive(ours, 60.0) == {"go": ""}


@pytest.mark.parametrize("late", [0, 1])
def test_all_go_when_the_last_is_there(pool, settings, late):
    hosts = make_hosts(3)
    early = [one for one in hosts if one.index != late]
    waiting = [pool.submit(rendezvous.meet, settings(), one) for one in early]
    time.sleep(0.3)
    assert not any(one.done() for one in waiting)
    rendezvous.meet(settings(), hosts[late])
    for one in waiting:
        one.result(60)
    assert not ports.taken(port_of(hosts[0]))


@pytest.mark.slow
def test_who_is_missing_is_named_by_all_that_are_there(pool, settings):
    chief, here, *others = make_hosts(4)
    there = pool.submit(rendezvous.meet, settings(), here)
    first, second = (one.name(*one.task) for one in others)
    line = (
        f"{first}, {second} did not arrive within --cluster_timeout=1 s; start them with the "
        "same flags, or give a longer --cluster_timeout"
    )
    for end in (lambda: rendezvous.meet(settings(1.0), chief), lambda: there.result(60)):
        with pytest.raises(RunError) as raised:
            end()
        assert str(raised.value) == line


def test_a_chief_that_does_not_come_is_named(settings):
    _, worker = make_hosts(2)
    with pytest.raises(RunError, match=r"^worker 0 \(127.0.0.1:[0-9]+\) did not arrive"):
        rendezvous.meet(settings(0.5), worker)


@pytest.mark.slow
def test_it_says_for_whom_it_waits(settings, monkeypatch, caplog):
    monkeypatch.setattr(rendezvous, "_REPORT_SECONDS", 0.0)
    chief, worker = make_hosts(2)
    for one, absent in ((chief, "worker 1"), (worker, "worker 0")):
        caplog.clear()
        with caplog.at_level(logging.INFO, logger="absl"), pytest.raises(RunError):
            rendezvous.meet(settings(0.5), one)
        (line,) = caplog.messages
        assert line.startswith(f"waiting for {absent} (127.0.0.1:")


def test_a_difference_is_told_to_all(pool, settings):
    chief, *others = make_hosts(3)
    line = f"{others[1].name('worker', 2)} has --epochs=7 and the chief 5; start every process"
    waiting = [pool.submit(rendezvous.meet, settings(), one) for one in (chief, others[0])]
    ends = [lambda: rendezvous.meet(settings(epochs=7), others[1])]
    for end in (*ends, *(one.result for one in waiting)):
        with pytest.raises(UsageError) as raised:
            end()
        assert str(raised.value).startswith(line)


def test_a_worker_that_leaves_is_waited_for_again(pool, settings):
    chief, worker, other = make_hosts(3)
    waiting = pool.submit(rendezvous.meet, settings(), chief)
    for said in (
        b'{"task": ["worker", 1]}',
        b"GET / HTTP/1.0\n",
        b"",
        b"[" * 100_000 + b"\n",
        b'{"task": {}}\n',
        b'{"task": ["worker", 1]}\n',
    ):
        gone = None
        while gone is None:  # until the chief listens
            with contextlib.suppress(OSError):
                gone = socket.create_connection(("127.0.0.1", port_of(chief)))
        with gone:
            gone.sendall(said)
    third = pool.submit(rendezvous.meet, settings(), other)
    time.sleep(0.5)
    assert not waiting.done() and not third.done()
    rendezvous.meet(settings(), worker)
    waiting.result(60)
    third.result(60)


@pytest.mark.slow
def test_a_chief_that_is_busy_with_the_run_before_is_waited_for(pool, settings):
    """Longer than for one that is not there at all."""
    chief, worker = make_hosts(2)
    with socket.create_server(("127.0.0.1", port_of(chief))) as server:
        waiting = pool.submit(rendezvous.meet, settings(0.1), worker)
        for _ in range(4):
            connection, _ = server.accept()
            connection.sendall(b"\0\0\x06\x04\0\0\0\0\0")  # HTTP/2, as gRPC greets
            connection.close()
        assert not waiting.done()
    rendezvous.meet(settings(), chief)
    waiting.result(60)


@pytest.fixture(scope="module")
def server():
    """The address of a server of TensorFlow, which runs until the process ends."""
    (port,) = ports.free(1)
    address = f"127.0.0.1:{port}"
    cluster = tf.train.ClusterSpec({"chief": [address]})
    return address, tf.distribute.Server(cluster, "chief", 0, protocol="grpc")


def test_a_server_that_comes_back_does_not_wait_for_a_chief_that_trains(settings, server):
    tasks = {"chief": (server[0],), "worker": ("127.0.0.1:1",), "ps": ("127.0.0.1:2",)}
    chief, worker = Hosts(tasks, "chief", 0), Hosts(tasks, "worker", 0)
    asynchronous = settings(1.0, "parameter_server")
    chief_note.write_note(asynchronous, chief)
    rendezvous.meet(asynchronous, worker)
    with pytest.raises(UsageError, match="^worker 0 .* has --epochs=9 and the chief 5; start"):
        rendezvous.meet(settings(1.0, "parameter_server", epochs=9), worker)


class Probe:
    """Takes the place of a connection, or of none."""

    def __init__(self, *probes):
        self._left, self.count = iter(probes), 0

    def __call__(self, address, seconds):
        self.count += 1
        self.greeting = next(self._left)
        if self.greeting is None:
            raise ConnectionRefusedError
        return contextlib.nullcontext(self)

    def receive(self, connection, seconds):
        return self.greeting


@pytest.mark.parametrize(
    ("seconds", "probes"),
    [
        (0.0, [BUSY, None, None, {}, None, None, None]),
        (0.0, [None, None, None]),
        (6.0, [None] * 5 + [BUSY, None, None, None]),  # its server starts
        (6.0, [None] * 6),
        (6.0, [None, BUSY, {"start": "again"}]),
    ],
)
def test_a_chief_that_misses_probes_in_a_row_or_greets_has_ended(monkeypatch, seconds, probes):
    probe = Probe(*probes)
    monkeypatch.setattr(rendezvous, "_WATCH_SECONDS", 1.0)
    monkeypatch.setattr(rendezvous.time, "sleep", lambda _: None)
    monkeypatch.setattr(rendezvous, "connect", probe)
    monkeypatch.setattr(rendezvous, "_receive", probe.receive)
    rendezvous.wait_for_end_of_chief(make_hosts(2)[1], seconds)
    assert probe.count == len(probes)


def test_a_wait_for_the_chief_ends_when_asked(monkeypatch):
    asked = iter([False, True])
    monkeypatch.setattr(rendezvous, "_WATCH_SECONDS", 0.01)
    rendezvous.wait_for_end_of_chief(make_hosts(2)[1], is_stopping=lambda: next(asked))
    assert next(asked, None) is None


def test_a_chief_that_is_started_again_at_once_is_noticed(pool, settings, monkeypatch):
    monkeypatch.setattr(rendezvous, "_WATCH_SECONDS", 0.1)
    chief, worker = make_hosts(2)
    meeting = pool.submit(rendezvous.meet, settings(), chief)
    rendezvous.wait_for_end_of_chief(worker, 60.0)
    rendezvous.meet(settings(), worker)
    meeting.result(60)


def test_the_own_address():
    (hosts,) = make_hosts(1)
    port = port_of(hosts)
    rendezvous.check_own_address(hosts, 0.0)
    with listening(port), pytest.raises(UsageError) as raised:
        rendezvous.check_own_address(hosts, 0.0)
    assert str(raised.value).startswith(
        f"TF_CONFIG names 127.0.0.1:{port} for this process (worker 0), and port {port} cannot be "
        "used: Address already in use; end the process that listens there"
    )
    rendezvous.check_own_address(Hosts({"worker": (f"localhost:{port}",)}, "worker", 0), 0.0)


def test_an_address_of_another_machine(monkeypatch):
    monkeypatch.setattr(rendezvous, "_PROBE_SECONDS", 0.1)
    (hosts,) = make_hosts(1)
    # One for documentation, which is nobody's (RFC 5737).
    elsewhere = Hosts({"worker": (f"192.0.2.1:{port_of(hosts)}",)}, "worker", 0)
    with pytest.raises(UsageError, match='and that is another machine; correct "task", or start'):
        rendezvous.check_own_address(elsewhere, 0.0)
    monkeypatch.setattr(ports, "taken", lambda port, host="": "none of ours" if host else "")
    rendezvous.check_own_address(hosts, 0.0)  # what is sent there arrives


def test_a_name_that_is_not_known(monkeypatch, caplog):
    looked = []

    def unknown(*_, **__):
        looked.append(time.monotonic())
        raise socket.gaierror("Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    hosts = Hosts({"worker": (f"pod-0:{ports.free(1)[0]}",)}, "worker", 0)
    with caplog.at_level(logging.INFO, logger="absl"), pytest.raises(UsageError) as raised:
        rendezvous.check_own_address(hosts, 0.5)
    assert "and no machine of that name is known; correct the address" in str(raised.value)
    assert len(looked) > 1 and len(caplog.messages) == 1
