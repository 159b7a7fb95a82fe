"""Who of a cluster is there, whose port is whose, and how processes meet."""

from __future__ import annotations

import logging
import socket
import threading
import time

import pytest

from app.config import Config, RunConfig
from app.distributed import liveness, rendezvous
from app.distributed.cluster_spec import Hosts
from app.errors import RunError, UsageError
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
    assert liveness.missing(hosts, hosts.others, 0.0) == [("worker", 1)]
    with listening(other):
        assert all(liveness.is_listening(address) for _ in range(300))  # more than a queue holds
        assert liveness.missing(hosts, hosts.everyone, 0.0) == [("worker", 0)]
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


def test_it_waits_and_says_for_whom(monkeypatch, caplog):
    monkeypatch.setattr(liveness, "_REPORT_SECONDS", 0.0)
    own, other = ports.free(2)
    hosts = hosts_at(own, other)
    arrived, gone = threading.Event(), threading.Event()

    def arrive():
        arrived.wait()
        with listening(other):
            gone.wait()

    def let_it(task):
        arrived.set()
        return f"worker {task}"

    thread = threading.Thread(target=arrive)
    thread.start()
    monkeypatch.setattr(Hosts, "name", lambda self, kind, index: let_it(index))
    with caplog.at_level(logging.INFO, logger="absl"):
        liveness.wait_for(hosts, hosts.others, 60.0)
    gone.set()
    thread.join()
    assert caplog.messages == ["waiting for worker 1"]


def test_who_is_missing_is_told():
    found = ports.free(3)
    hosts = hosts_at(*found)
    with pytest.raises(RunError) as raised:
        liveness.wait_for(hosts, hosts.others, 0.3)
    first, second = (f"worker {n} (127.0.0.1:{found[n]})" for n in (1, 2))
    assert str(raised.value) == (
        f"{first}, {second} did not arrive within --cluster_timeout=0.3 s; start them with the "
        "same flags, or give a longer --cluster_timeout"
    )


def test_the_own_address():
    own = ports.free(1)[0]
    hosts = hosts_at(own)
    liveness.check_own_address(hosts)
    with listening(own), pytest.raises(UsageError) as raised:
        liveness.check_own_address(hosts)
    assert str(raised.value).startswith(
        f"TF_CONFIG names 127.0.0.1:{own} for this process (worker 0), and port {own} cannot be "
        "used: Address already in use; end the process that listens there"
    )
    liveness.check_own_address(Hosts({"worker": (f"localhost:{own}",)}, "worker", 0))


def test_an_address_of_another_machine(monkeypatch):
    monkeypatch.setattr(liveness, "_PROBE_SECONDS", 0.1)
    own = ports.free(1)[0]
    # One for documentation, which is nobody's (RFC 5737).
    elsewhere = Hosts({"worker": (f"192.0.2.1:{own}",)}, "worker", 0)
    with pytest.raises(UsageError, match='and that is another machine; correct "task", or start'):
        liveness.check_own_address(elsewhere)
    monkeypatch.setattr(ports, "taken", lambda port, host="": "none of ours" if host else "")
    liveness.check_own_address(hosts_at(own))  # what is sent there arrives


def test_a_name_that_is_not_known(monkeypatch, caplog):
    looked = []

    def unknown(*_, **__):
        looked.append(time.monotonic())
        raise socket.gaierror("Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    hosts = Hosts({"worker": (f"pod-0:{ports.free(1)[0]}",)}, "worker", 0)
    with caplog.at_level(logging.INFO, logger="absl"), pytest.raises(UsageError) as raised:
        liveness.check_own_address(hosts, 0.5)
    assert "and no machine of that name is known; correct the address" in str(raised.value)
    assert len(looked) > 1 and len(caplog.messages) == 1


def joined(configs, hosts) -> list[str]:
    """How processes of these settings join, and go on: the error of each, empty for none."""
    ended = [""] * len(configs)
    everyone = threading.Barrier(len(configs))

    def join(index):
        own = Hosts(hosts.tasks, "worker", index)
        config = configs[index]
        try:
            with rendezvous.present(config, own), listening(int(own.address.rpartition(":")[2])):
                try:
                    rendezvous.await_all(config, own)
                finally:
                    everyone.wait()
        except (RunError, UsageError) as error:
            ended[index] = str(error)

    threads = [threading.Thread(target=join, args=(index,)) for index in range(len(configs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ended


@pytest.mark.parametrize("epochs", [5, 7])
def test_all_that_join_learn_the_same(tmp_path, epochs):
    hosts = hosts_at(*ports.free(3))
    runs = [RunConfig(workdir=str(tmp_path), epochs=n) for n in (5, 5, epochs)]
    name = hosts.name("worker", 2)
    line = f"{name} has --epochs=7 and the chief 5; start every process with the same flags"
    assert joined([Config(run=run) for run in runs], hosts) == [line if epochs == 7 else ""] * 3
