"""What a person can get wrong in starting processes on several machines: one line, an exit code."""

from __future__ import annotations

import pathlib

import pytest

from app.distributed.cluster_spec import Hosts
from app.distributed.local_cluster import make_hosts
from tests.integration.commands import Command, Ended, refusal, train, write_corpus
from tests.processes import listening


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("text") / "corpus.txt", 30)


class Member:
    """One process of a cluster: where it writes, and what it is started with."""

    def __init__(self, folder: pathlib.Path, hosts: Hosts, corpus, *more: str, pretend: str = ""):
        kind, index = hosts.task
        place = folder / f"{kind}-{index}"
        place.mkdir(parents=True)
        flags = [flag for flag in train(folder / "run", corpus) if not flag.startswith("--device")]
        self._command = Command(
            place,
            "tests.integration.in_cluster",
            hosts.as_tf_config(*hosts.task),
            *([pretend] if pretend else []),
            *flags,
            "--strategy=multi_worker",
            *more,
        )

    def ended(self) -> Ended:
        return self._command.ended()


def as_worker(hosts: Hosts, index: int) -> Hosts:
    return Hosts(hosts.tasks, "worker", index)


@pytest.mark.parametrize(
    ("strategy", "config", "message"),
    [
        ("multi_worker", "", "--strategy=multi_worker: TF_CONFIG is not set"),
        ("multi_worker", "worker 1", "TF_CONFIG=worker 1 is not JSON (Expecting value"),
        ("parameter_server", "", "--strategy=parameter_server: parameter servers are gone; give"),
        (
            "multi_worker",
            '{"cluster": {"worker": ["127.0.0.1:2222"]}, "task": {"type": "worker", "index": 3}}',
            "TF_CONFIG: this process is worker 3, and its cluster has 1 of worker; corr",
        ),
    ],
)
def test_a_tf_config_that_cannot_be(tmp_path, corpus, strategy, config, message):
    command = train(tmp_path / "run", corpus, f"--strategy={strategy}", "--device=")
    ended = Command(tmp_path, "tests.integration.in_cluster", config, *command).ended()
    assert message in refusal(ended)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("index", [0, 1])
def test_a_port_that_is_in_use(tmp_path, corpus, index):
    hosts = as_worker(make_hosts(2, 0), index)
    with listening(int(hosts.address.rpartition(":")[2])):
        line = refusal(Member(tmp_path, hosts, corpus).ended())
    what = f"TF_CONFIG names {hosts.address} for this process (worker {index}), and port "
    assert what in line and "Address already in use; end the process that listens there" in line


@pytest.mark.slow
def test_processes_that_do_not_arrive(tmp_path, corpus):
    hosts = make_hosts(3, 0)
    member = Member(tmp_path, hosts, corpus, "--cluster_timeout=1")
    line = member.ended().err.splitlines()[-1]
    absent = ", ".join(hosts.name(*task) for task in hosts.others)
    assert f"{absent} did not arrive within --cluster_timeout=1 s; start them with the" in line


@pytest.mark.slow
def test_workers_that_differ(tmp_path, corpus):
    hosts = make_hosts(2, 0)
    other = as_worker(hosts, 1)
    for number, (more, pretend, message) in enumerate(
        (
            (["--negatives=7"], "", "has --negatives=7 and the chief 5; start every process with"),
            ([], "TensorFlow=2.20.0", "has TensorFlow 2.20.0 and the chief 2."),
        )
    ):
        folder = tmp_path / str(number)
        both = [
            Member(folder, hosts, corpus),
            Member(folder, other, corpus, *more, pretend=pretend),
        ]
        first, second = (refusal(member.ended()) for member in both)
        assert f"{hosts.name('worker', 1)} {message}" in first and second == first


@pytest.mark.slow
def test_who_comes_late_to_a_run_that_is_finished_is_told(tmp_path, corpus):
    """A worker that was started again at the very end is not to be started again for ever."""
    assert Command(tmp_path, *train(tmp_path / "run", corpus)).ended().code == 0
    late = Member(tmp_path, as_worker(make_hosts(2, 0), 1), corpus, "--cluster_timeout=1")
    ended = late.ended()
    assert ended.code == 0, ended.err
    assert "worker 0 (127.0.0.1:" in ended.err
    assert "(ignored: the run is already finished)" in ended.err

    more = Member(tmp_path / "more", as_worker(make_hosts(2, 0), 1), corpus, "--cluster_timeout=1")
    assert "did not arrive within --cluster_timeout=1 s" in refusal(more.ended(), code=1)
