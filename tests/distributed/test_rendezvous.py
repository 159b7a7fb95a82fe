"""Processes wait for one another, compare themselves with the chief, and end with one message."""

import concurrent.futures
import json
import logging
import socket
import time

import numpy as np
import pytest
import tensorflow as tf

from app.distributed import cluster_spec, rendezvous
from app.distributed.cluster_spec import Hosts
from app.distributed.multi_worker import Agreement, gather_bytes
from app.errors import RunError, UsageError
from app.settings import Config, RunConfig
from app.settings.flag_values import by_name
from app.system import ports
from tests.processes import listening, until


@pytest.fixture
def pool():
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture
def settings(tmp_path):
    def settings(seconds=60.0, **run):
        run = {"workdir": str(tmp_path), "strategy": "multi_worker", **run}
        return by_name(Config(run=RunConfig(cluster_timeout=seconds, **run)))

    return settings


def make_hosts(count):
    tasks = {"worker": tuple(f"127.0.0.1:{port}" for port in ports.free(count))}
    return [Hosts(tasks, "worker", index) for index in range(count)]


def port_of(hosts):
    return int(hosts.address.rpartition(":")[2])


def note_of(folder, hosts):
    return folder / "cluster" / "{}-{}.json".format(*hosts.task)


@pytest.mark.parametrize("late", [0, 1])
def test_all_go_when_the_last_is_there(pool, settings, late):
    hosts = make_hosts(3)
    early = [one for one in hosts if one.index != late]
    waiting = [pool.submit(rendezvous.Presence, settings(), one) for one in early]
    time.sleep(0.3)
    assert not any(one.done() for one in waiting)
    present = rendezvous.Presence(settings(), hosts[late])
    others = [one.result(60) for one in waiting]
    assert present.missing(hosts[late].everyone) == []
    del waiting, others
    assert present.missing(hosts[late].everyone) == list(hosts[late].others)


@pytest.mark.slow
def test_who_is_missing_is_named_by_all_that_are_there(pool, settings):
    chief, here, *others = make_hosts(4)
    there = pool.submit(rendezvous.Presence, settings(), here)
    first, second = (one.name(*one.task) for one in others)
    line = (
        f"{first}, {second} did not arrive within --cluster_timeout=1 s; start them with the same "
        "flags and one --workdir that all processes share, or give a longer --cluster_timeout"
    )
    for end in (lambda: rendezvous.Presence(settings(1.0), chief), lambda: there.result(60)):
        with pytest.raises(RunError) as raised:
            end()
        assert str(raised.value) == line


def test_a_chief_that_does_not_come_is_named(settings):
    _, worker = make_hosts(2)
    with pytest.raises(RunError, match=r"^worker 0 \(127.0.0.1:[0-9]+\) did not arrive"):
        rendezvous.Presence(settings(0.5), worker)


@pytest.mark.slow
def test_it_says_for_whom_it_waits(settings, monkeypatch, caplog):
    monkeypatch.setattr(rendezvous, "_REPORT_SECONDS", 0.0)
    chief, worker = make_hosts(2)
    for one, absent in ((chief, "worker 1"), (worker, "worker 0")):
        caplog.clear()
        with caplog.at_level(logging.INFO, logger="absl"), pytest.raises(RunError):
            rendezvous.Presence(settings(0.5), one)
        (line,) = caplog.messages
        assert line.startswith(f"waiting for {absent} (127.0.0.1:")


def test_a_difference_is_told_to_all(pool, settings):
    chief, *others = make_hosts(3)
    line = f"{others[1].name('worker', 2)} has --epochs=7 and the chief 5; start every process"
    waiting = [pool.submit(rendezvous.Presence, settings(), one) for one in (chief, others[0])]
    ends = [lambda: rendezvous.Presence(settings(epochs=7), others[1])]
    for end in (*ends, *(one.result for one in waiting)):
        with pytest.raises(UsageError) as raised:
            end()
        assert str(raised.value).startswith(line)


def test_a_worker_that_leaves_is_waited_for_again(pool, settings, tmp_path):
    chief, worker, other = make_hosts(3)
    waiting = pool.submit(rendezvous.Presence, settings(), chief)
    until(lambda: note_of(tmp_path, chief).exists() and note_of(tmp_path, chief).read_text())
    start = json.loads(note_of(tmp_path, chief).read_text())["start"]
    # It is gone, so it has no lock; then its note is not a note.
    for text in (json.dumps({"start": start, "refused": ""}), "", "[1]", "7", "\0", "[" * 1000):
        note_of(tmp_path, worker).write_text(text)
        time.sleep(0.3)
    third = pool.submit(rendezvous.Presence, settings(), other)
    time.sleep(0.5)
    assert not waiting.done() and not third.done()
    present = rendezvous.Presence(settings(), worker)
    assert present.missing(worker.others) == []
    assert waiting.result(60) and third.result(60)


@pytest.mark.slow
def test_a_chief_that_trains_is_waited_for_until_it_starts_again(pool, settings):
    """Longer than for one that is not there at all."""
    chief, worker = make_hosts(2)
    meeting = pool.submit(rendezvous.Presence, settings(), chief)
    before = rendezvous.Presence(settings(), worker)
    trains = meeting.result(60)
    del before  # the worker is lost, and started again
    waiting = pool.submit(rendezvous.Presence, settings(0.5), worker)
    time.sleep(1.5)
    assert not waiting.done()
    del trains, meeting
    kept = rendezvous.Presence(settings(), chief)
    assert waiting.result(60) and kept


@pytest.mark.parametrize("is_new", [False, True])
def test_the_end_of_the_chief_is_noticed(pool, settings, monkeypatch, is_new):
    monkeypatch.setattr(rendezvous, "_WATCH_SECONDS", 0.1)
    chief, worker = make_hosts(2)
    meeting = pool.submit(rendezvous.Presence, settings(), chief)
    present = rendezvous.Presence(settings(), worker)
    there = [meeting.result(60)]
    del meeting
    waiting = pool.submit(present.wait_for_end_of_chief)
    time.sleep(0.3)
    assert not waiting.done()
    there.clear()
    again = pool.submit(rendezvous.Presence, settings(1.0), chief) if is_new else None
    waiting.result(60)
    if again is not None:
        assert isinstance(again.exception(60), RunError)  # the worker does not report again


@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 1])
def test_two_clusters_in_one_workdir(pool, settings, monkeypatch, tmp_path, index):
    chief, worker = make_hosts(2)
    meeting = pool.submit(rendezvous.Presence, settings(), chief)
    present = rendezvous.Presence(settings(), worker), meeting.result(60)
    monkeypatch.setattr(rendezvous, "_LOCK_SECONDS", 0.5)
    with pytest.raises(UsageError) as raised:
        rendezvous.Presence(settings(), make_hosts(2)[index])
    assert str(raised.value) == (
        f"--workdir={tmp_path}: another cluster is running there, with a worker {index} of its "
        "own; wait for it or choose another folder"
    )
    assert present[0].missing(worker.everyone) == []


def test_a_workdir_that_cannot_be_written(settings, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError) as raised:
        rendezvous.Presence(settings(workdir=str(tmp_path / "file")), make_hosts(1)[0])
    line = str(raised.value)
    assert line.startswith(f"--workdir={tmp_path}/file: ") and "one folder that they share" in line


CHIEF = Hosts({"chief": ("a:1",), "worker": ("b:1", "c:1")}, "chief", 0)
WORKER = Hosts(CHIEF.tasks, "worker", 1)


def differences(flags, other, hosts=WORKER, **changes):
    """The message of a worker about the note of its chief."""
    chief = rendezvous.describe(flags, CHIEF)
    chief |= {label.replace("_", " "): value for label, value in changes.items()}
    return rendezvous.difference(rendezvous.describe(other, hosts), chief, hosts)


def test_the_same_everywhere_is_right(settings):
    may_differ = {"prefetch": 3, "map_parallelism": 7, "device": "GPU:0", "log_seconds": 3.0}
    assert differences(settings(), settings() | may_differ | {"intra_op_threads": 4}) == ""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dim": 50}, "--dim=50 and the chief 100; start every process with the same flags"),
        ({"corpus": "{y}"}, "--corpus={y} and the chief docstrings; start every"),
        ({"epochs": 3}, "--epochs=3 and the chief 5; start every"),
    ],
)
def test_a_flag_that_differs(settings, change, message):
    assert differences(settings(), settings() | change).startswith(f"worker 1 (c:1) has {message}")


def test_a_version_a_revision_and_a_cluster_that_differ(settings):
    flags = settings()
    version = rendezvous._version("tensorflow")
    assert differences(flags, flags, TensorFlow_="2.20.0") == (
        f"worker 1 (c:1) has TensorFlow {version} and the chief 2.20.0; install the same lock file "
        "everywhere"
    )
    line = differences(flags, flags, revision_of_Lexrow_="0123456789ab")
    assert line.startswith("worker 1 (c:1) has revision of Lexrow ")
    assert line.endswith(" and the chief 0123456789ab; install the same revision everywhere")
    line = differences(flags, flags, Hosts({**CHIEF.tasks, "chief": ("e:1",)}, "worker", 1))
    assert '{"chief": ["e:1"],' in line and 'and the chief {"chief": ["a:1"],' in line
    assert line.startswith("worker 1 (c:1) has TF_CONFIG with the cluster ")


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
def test_errors_of_a_lost_process_are_recognized_by_their_types(error, text, expected):
    assert rendezvous.is_lost_process_error(error(None, None, text)) == expected


def test_free_ports_are_free_and_differ():
    found = ports.free(50)
    assert len(set(found)) == 50 and not any(map(ports.taken, found))


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


def test_an_address_of_another_machine(caplog):
    (hosts,) = make_hosts(1)
    # One for documentation, which is nobody's (RFC 5737).
    elsewhere = Hosts({"worker": (f"192.0.2.1:{port_of(hosts)}",)}, "worker", 0)
    rendezvous.check_own_address(elsewhere, 0.0)
    (message,) = caplog.messages
    assert 'has no such address; if that is another machine, correct "task", or start' in message
    rendezvous.check_own_address(hosts, 0.0)
    assert len(caplog.messages) == 1


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


def run_together(shares, epochs):
    """The calls of processes in step, by process, until all are at their end."""
    told = [False]
    agreements = [Agreement(lambda: told[0]) for _ in shares]
    running = [
        agreement.batches(iter(share), epochs, "empty")
        for agreement, share in zip(agreements, shares, strict=True)
    ]
    made = []
    while True:
        calls = [next(batches, None) for batches in running]
        if None in calls:
            assert calls == [None] * len(shares), "some wait for others for ever"
            return list(zip(*made, strict=True))
        made.append(calls)
        told[0] = any(agreement.has_more for agreement in agreements)


@pytest.mark.parametrize(
    "lengths", [[(3, 3), (3, 3)], [(1, 4), (3, 2)], [(0, 2), (2, 0), (1, 1)], [(5, 1), (0, 0)]]
)
def test_all_make_as_many_calls_of_an_epoch_as_the_longest_share_has(lengths):
    shares = [
        [(epoch, f"{epoch}.{n}") for epoch, count in enumerate(counts) for n in range(count)]
        for counts in lengths
    ]
    for share, made in zip(shares, run_together(shares, range(2)), strict=True):
        assert [call for call in made if call[1] != "empty"] == share
        for epoch in range(2):
            most = max(counts[epoch] for counts in lengths)
            assert sum(call[0] == epoch for call in made) == max(most, 1)


def test_one_process_makes_its_own_calls_only():
    share = [(4, "a"), (4, "b"), (5, "c")]
    assert run_together([share], range(4, 6)) == [tuple(share)]


def test_no_epochs_are_no_calls():
    assert run_together([[], []], range(0)) == []


@pytest.mark.parametrize("replicas", [1, 2])
def test_messages_of_any_length_come_from_every_process(replicas):
    messages = [b"", b"\0one\0", b"longer than eight bytes"]
    sent = [len(message) for message in messages]

    def gather(mine_N):
        """Each process has as many replicas, all with its numbers."""
        if len(mine_N) == 1:
            numbers = [[size] for size in sent]
        else:
            padded = [message.ljust(24, b"\0") for message in messages]
            assert padded[1] == mine_N.numpy().tobytes()
            numbers = [np.frombuffer(message, np.int64) for message in padded]
        return np.repeat(np.array(numbers, np.int64), replicas, axis=0)

    assert gather_bytes(messages[1], gather, 3) == messages


def test_empty_messages():
    def gather(mine_N):
        return np.repeat(mine_N.numpy()[np.newaxis], 2, axis=0)

    assert gather_bytes(b"", gather, 2) == [b"", b""]


# TF_CONFIG: what it says, and what is wrong with it in one line.


WITH_CHIEF = {"chief": ["host-4.example:80"], "worker": ["10.0.0.2:2222", "10.0.0.3:2222"]}
WORKERS = {"worker": ["10.0.0.2:2222", "[::1]:2222"]}


def config(cluster, kind="worker", index=0):
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


def test_what_it_names():
    found = cluster_spec.parse_tf_config("multi_worker", config(WITH_CHIEF, "worker", 1))
    assert found.task == ("worker", 1) and found.address == "10.0.0.3:2222"
    assert found.chief == ("chief", 0) and not found.is_chief
    assert found.everyone == (("chief", 0), ("worker", 0), ("worker", 1))
    assert found.others == (("chief", 0), ("worker", 0))
    assert found.name("worker", 1) == "worker 1 (10.0.0.3:2222)"
    assert found.name("chief", 0) == "chief (host-4.example:80)"


def test_it_goes_round():
    first = cluster_spec.parse_tf_config("multi_worker", config(WITH_CHIEF, "worker", 1))
    for kind, index in first.everyone:
        again = cluster_spec.parse_tf_config("multi_worker", first.as_tf_config(kind, index))
        assert again.tasks == first.tasks and again.task == (kind, index)


def test_without_a_chief_the_first_worker_is():
    assert cluster_spec.parse_tf_config("multi_worker", config(WORKERS)).is_chief
    assert not cluster_spec.parse_tf_config("multi_worker", config(WORKERS, index=1)).is_chief
    beside = {"chief": ["a:1"], **WORKERS, "ps": []}
    assert not cluster_spec.parse_tf_config("multi_worker", config(beside)).is_chief
    assert cluster_spec.parse_tf_config("multi_worker", config(beside, "chief")).is_chief


def test_an_index_may_be_a_text():
    assert cluster_spec.parse_tf_config("multi_worker", config(WORKERS, index="1")).index == 1


@pytest.mark.parametrize("strategy", ["none", "mirrored"])
def test_one_machine_does_without(strategy, caplog):
    assert cluster_spec.parse_tf_config(strategy, None) is None
    assert not caplog.text
    with caplog.at_level(logging.INFO, logger="absl"):
        assert cluster_spec.parse_tf_config(strategy, "{}") is None  # as managed clusters set it
    assert f"--strategy={strategy} trains on this machine alone" in caplog.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "--strategy=multi_worker: TF_CONFIG is not set"),
        (" ", "--strategy=multi_worker: TF_CONFIG is not set"),
        ("{cluster}", "TF_CONFIG={cluster} is not JSON (Expecting property name"),
        ("[1]", 'TF_CONFIG=[1] has no "cluster"; give one such as {"cluster"'),
        ('{"task": {}}', 'TF_CONFIG={"task": {}} has no "cluster"'),
        ('{"cluster": []}', 'has no "cluster"'),
        (config({"master": ["a:1"]}), '"master" is none of chief, worker; rename'),
        (config({"boss": ["a:1"]}), '"boss" is none of chief, worker; rename'),
        (config({"evaluator": ["a:1"]}), "is none of chief, worker; rename it or leave it out"),
        (config(WORKERS, "evaluator"), "is none of chief, worker; rename it or leave it out"),
        (config(WORKERS, ["worker"]), '["worker"] is none of chief, worker; rename'),
        (config({"worker": "a:1"}), '"worker" is "a:1"; give a list of HOST:PORT'),
        (config({"worker": {"0": "a:1"}}), '"worker" is {"0": "a:1"}; give a list'),
        (config({"worker": ["a"]}), 'worker 0 is at "a"; give HOST:PORT such as'),
        (config({"worker": ["a:0"]}), 'worker 0 is at "a:0"; give HOST:PORT'),
        (config({"worker": ["a:65536"]}), 'worker 0 is at "a:65536"; give HOST'),
        (config({"worker": [2222]}), "worker 0 is at 2222; give HOST:PORT"),
        (
            config({"worker": ["a:1", "b:1"], "chief": ["a:1"]}),
            "worker 0 and chief 0 are both at a:1; give each process a port of its own",
        ),
        (
            json.dumps({"cluster": WORKERS}),
            'TF_CONFIG has no "task" that says which process this is',
        ),
        (
            json.dumps({"cluster": WORKERS, "task": {"type": "worker"}}),
            'TF_CONFIG has no "task" that says which process this is',
        ),
        (config(WORKERS, index=2), "is worker 2, and its cluster has 2 of worker"),
        (config(WORKERS, index=-1), '"index" of "task" is -1; give a number'),
        (config(WORKERS, index=1.5), '"index" of "task" is 1.5; give a number'),
        (config(WORKERS, index=True), '"index" of "task" is true; give a number'),
        (config(WORKERS, "chief"), "is chief 0, and its cluster has 2 of worker"),
        (config(WORKERS | {"chief": ["a:1", "b:1"]}), "there are 2 chiefs (a:1,"),
        (config(WORKERS | {"ps": ["d:1"]}), "rename it or leave it out"),
        (config({"worker": []}), "and its cluster has no process; corr"),
    ],
)
def test_what_is_wrong_is_told(text, message):
    with pytest.raises(UsageError) as raised:
        cluster_spec.parse_tf_config("multi_worker", text)
    line = str(raised.value)
    assert message in line and "\n" not in line and line.startswith(("TF_CONFIG", "--strategy"))


def test_a_long_one_is_cut():
    with pytest.raises(UsageError) as raised:
        cluster_spec.parse_tf_config("multi_worker", "{" + "x" * 999)
    assert len(str(raised.value)) < 200
