"""What the chief of workers and servers refuses, and what it says of those that are lost."""

from __future__ import annotations

import logging
from unittest import mock

import pytest
import tensorflow as tf

from app.distributed import parameter_server, rendezvous
from app.distributed.cluster_spec import Hosts
from app.errors import RunError, UsageError
from app.optimizers.adam import lazy_adam
from app.settings import Config, checks, flag_values


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"table": "host"}, "--table=host: --strategy=parameter_server keeps the tables in"),
        ({"table": "dynamic"}, "--table=dynamic: --strategy=parameter_server"),
        ({"loss": "class_softmax", "class_devices": 2}, "--class_devices=2 divides classes over"),
    ],
)
def test_what_servers_cannot_carry_is_refused_by_name(flags, message):
    values = {"workdir": "run", "strategy": "parameter_server"}
    checks.check(flag_values.from_names(values))
    with pytest.raises(UsageError, match=f"^{message}"):
        checks.check(flag_values.from_names({**values, **flags}))


@pytest.fixture
def hosts():
    """A chief, two workers and a server."""
    return Hosts({"chief": ("a:1",), "worker": ("b:1", "c:1"), "ps": ("d:1",)}, "chief", 0)


@pytest.fixture
def absent():
    """The processes that are gone."""
    return []


@pytest.fixture
def coordinator(hosts, monkeypatch, absent):
    """One that is connected to nobody."""
    presence = mock.Mock(missing=lambda tasks: [task for task in tasks if task in absent])
    monkeypatch.setattr(rendezvous, "check_own_address", lambda *_: None)
    monkeypatch.setattr(rendezvous, "meet", lambda *_: presence)
    monkeypatch.setattr(tf.distribute, "ParameterServerStrategy", lambda _: None)
    monkeypatch.setattr(parameter_server, "_shorten_log", lambda _: None)
    monkeypatch.setattr(tf.distribute.coordinator, "ClusterCoordinator", lambda _: None)
    return parameter_server.Coordinator(Config(), hosts)


def test_only_state_that_is_a_sum_is_exchanged_by_call(coordinator, hosts):
    flags = {"exchange": "call", "optimizer": "lazy_adam", "strategy": "parameter_server"}
    asked = parameter_server.Coordinator(flag_values.from_names(flags), hosts)
    job = mock.Mock(optimizer=lazy_adam())
    with pytest.raises(UsageError, match="^--exchange=call adds .* --optimizer=lazy_adam does not"):
        asked.open(job, {}, 1)


def unavailable(message):
    return tf.errors.UnavailableError(None, None, message)


def test_a_server_that_is_gone_is_named_whatever_failed_for_it(coordinator, hosts, absent):
    absent.append(("ps", 0))
    address = hosts.address_of("ps", 0)
    for error in (unavailable("recvmsg: reset"), RunError("the checkpoint cannot be written")):
        with pytest.raises(RunError, match=f"^a parameter server is lost .* ps 0 .{address}.;"):
            with coordinator.error_context():
                raise error


def test_other_errors_stay_what_they_are(coordinator):
    for error in (
        tf.errors.InvalidArgumentError(None, None, "shapes differ"),
        RunError("a loss is not finite"),
    ):
        with pytest.raises(type(error)) as caught, coordinator.error_context():
            raise error
        assert caught.value is error


def test_a_server_that_was_started_again(coordinator):
    text = "Unable to find a context_id matching the specified one (17). Perhaps the worker was"
    for error in (
        unavailable("Connection reset by peer"),
        tf.errors.AbortedError(None, None, "no session"),
        tf.errors.InvalidArgumentError(None, None, text),
    ):
        with pytest.raises(RunError, match="lost with its rows: one that was started again"):
            with coordinator.error_context():
                raise error


def test_a_worker_that_is_gone_is_told_in_a_line(hosts, monkeypatch):
    logger = logging.Logger("like TensorFlow's")
    monkeypatch.setattr(tf, "get_logger", lambda: logger)
    parameter_server._shorten_log(hosts)

    def told(text, *arguments, path="x/coordinator/cluster_coordinator.py", level=logging.ERROR):
        record = logging.LogRecord("", level, path, 1, text, arguments, None)
        return record.getMessage() if logger.filter(record) else ""

    name = hosts.name("worker", 1)
    lost = "Worker %s failed with %r:%s", "/job:worker/replica:0/task:1", "E", "many\nlines"
    assert told(*lost) == f"{name} is gone: other workers make its calls until it is back"
    assert told("Start cancelling closures due to error") == ""
    assert told("of another part", path="x/values.py") == "of another part"
    assert told("of another part", path="x/values.py", level=logging.INFO) == ""


def remote_value(*outcomes, own_error=None):
    """A result whose `fetch` has these outcomes, one after another."""
    call = mock.Mock()
    call.fetch.side_effect = outcomes
    call._get_error.return_value = own_error
    return call


def test_the_result_of_a_lost_worker_is_awaited_from_the_repeated_call(monkeypatch):
    monkeypatch.setattr(parameter_server, "_SECONDS_BETWEEN_FETCHES", 0)
    lost = unavailable("no connection to remote target /job:worker/replica:0/task:1/device:CPU:0")
    assert parameter_server.fetch(remote_value(lost, lost, (1.0, 8.0))) == (1.0, 8.0)


def test_the_error_of_a_call_that_is_not_repeated_is_raised():
    of_worker = unavailable("cancelled on /job:worker/replica:0/task:1")
    of_server = unavailable("remote target /job:ps/replica:0/task:0")
    for call in (remote_value(of_worker, own_error=of_worker), remote_value(of_server)):
        with pytest.raises(tf.errors.UnavailableError):
            parameter_server.fetch(call)
