"""Workers and parameter servers: the same rows as one process, and nothing lost with a process."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pathlib
import signal
import sys
from collections.abc import Iterator

import pytest

from app.distributed.cluster_spec import Hosts
from app.system import ports
from tests.integration.commands import Command, done, logged, newest_step, train, write_corpus
from tests.integration.replicas import CASES, write_data
from tests.integration.served import assert_same
from tests.processes import is_running, until

# Of an epoch each: the strategies that a run goes on with.
RUNS = {
    "straight": ("none", "none"),
    "there": ("none", "parameter_server"),
    "back": ("parameter_server", "none"),
}
MORE = ("--strategy=parameter_server", "--cluster_timeout=60")


class Cluster:
    """The processes of a run, `lexrow train` each."""

    def __init__(self, folder: pathlib.Path, *flags: str, workers: int = 2, servers: int = 2):
        addresses = [f"127.0.0.1:{port}" for port in ports.free(1 + workers + servers)]
        tasks = {"chief": addresses[:1], "worker": addresses[1 : 1 + workers]}
        tasks["ps"] = addresses[1 + workers :]
        self._hosts = Hosts({job: tuple(found) for job, found in tasks.items()}, "chief", 0)
        self._folder, self._flags, self._count = folder, flags, itertools.count()
        self.started: dict[tuple[str, int], Command] = {}
        for task in self._hosts.others:
            self.start(*task)

    def start(self, kind: str, index: int) -> Command:
        """Starts a process, as a person does; what it prints is in a folder of its own."""
        (place := self._folder / f"{kind}{index}.{next(self._count)}").mkdir()
        config = self._hosts.as_tf_config(kind, index)
        command = ("tests.integration.in_cluster", config, *self._flags, *MORE)
        self.started[kind, index] = Command(place, *command)
        return self.started[kind, index]

    def kill(self, kind: str, index: int) -> None:
        """Ends one at once, with SIGKILL."""
        command = self.started[kind, index]
        os.kill(command.process.pid, signal.SIGKILL)
        command.process.join()

    def end(self) -> None:
        """Leaves nothing behind."""
        for command in self.started.values():
            command.process.kill()
            command.process.join()


@contextlib.contextmanager
def running(folder: pathlib.Path, *flags: str, **counts: int) -> Iterator[Cluster]:
    """Workers and servers for the length of the block; the chief is for the test to start."""
    cluster = Cluster(folder, *flags, **counts)
    try:
        yield cluster
    finally:
        cluster.end()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A workdir for each of RUNS, trained by one worker that has one call at a time."""
    folder = tmp_path_factory.mktemp("served")
    write_data(folder)
    runs = (
        f"adagrad,{strategy},{epochs},{folder}/{name}"
        for name, strategies in RUNS.items()
        for epochs, strategy in enumerate(strategies, 1)
    )
    done(folder, "tests.integration.served", "1", *runs)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", ["there", "back"])
def test_one_worker_trains_the_same_rows_and_checkpoints_go_both_ways(folder, name):
    assert_same(folder / "straight", folder / name)
    layouts = sorted((folder / name).glob("checkpoints/*/tables.json"))
    kinds = [json.loads(path.read_text())["input"]["kind"] for path in layouts]
    assert kinds == [{"none": "device", "parameter_server": "sharded"}[one] for one in RUNS[name]]


def train_case(folder, case, exchange):
    """Trains a case by one worker of servers, and in one process: both must have the same rows."""
    write_data(folder)
    strategies = {"served": f"parameter_server+{exchange}", "none": "none"}
    runs = [f"{case},{strategy},2,{folder}/{name}" for name, strategy in strategies.items()]
    done(folder, "tests.integration.served", "1", *runs)
    assert_same(folder / "none", folder / "served")


# Draws of "rounded" go by the part, and the state of Adam is no sum.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "exchange"),
    [
        *((case, "step") for case in sorted(CASES.keys() - {"rounded"})),
        # The optimizer of a recommender is lazy_adam, whose state is no sum.
        *((c, "call") for c in sorted(CASES.keys() - {"rounded", "adam", "adagrad", "recommend"})),
    ],
)
def test_every_task_trains_as_in_one_process(tmp_path, case, exchange):
    train_case(tmp_path, case, exchange)


def test_all_calls_are_accounted_for_and_bytes_reported(tmp_path):
    train_case(tmp_path, "adagrad", "call")
    lines = [line for line in logged(tmp_path / "served") if "calls" in line]
    assert lines and all(line["calls"] == line["calls_made"] == line["step"] / 2 for line in lines)
    assert all(line["calls_again"] == 0 < line["exchanged_bytes"] for line in lines)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
def test_a_worker_that_is_killed_is_done_without_and_then_taken_back(tmp_path):
    corpus, workdir = write_corpus(tmp_path / "a.txt", 3000), tmp_path / "run"
    flags = train(workdir, corpus, "--log_seconds=0.5", "--epochs=3")
    with running(tmp_path, *flags) as cluster:
        chief = cluster.start("chief", 0)
        until(lambda: steps(workdir) > 0 or not chief.process.is_alive())
        cluster.kill("worker", 1)
        before = steps(workdir)
        until(lambda: steps(workdir) > before or not chief.process.is_alive())
        cluster.start("worker", 1)
        ended = chief.ended()
        assert ended.code == 0, ended.err
        assert "Traceback" not in ended.err and "UnavailableError" not in ended.err
        last = [line for line in logged(workdir) if "loss" in line][-1]
        assert last["calls"] == last["calls_made"] == last["step"] / 2
        assert 0 <= last["calls_again"] <= 1
        for command in cluster.started.values():
            until(lambda command=command: not is_running(command.process.pid))


@pytest.mark.slow
def test_a_server_that_is_killed_ends_the_run_and_the_next_one_resumes(tmp_path):
    corpus, workdir = write_corpus(tmp_path / "a.txt", 3000), tmp_path / "run"
    flags = train(workdir, corpus, "--log_seconds=0.5", "--epochs=3", "--checkpoint_minutes=0.01")
    with running(tmp_path, *flags, workers=1) as cluster:
        chief = cluster.start("chief", 0)
        until(lambda: newest_step(workdir) > 0 or not chief.process.is_alive())
        cluster.kill("ps", 1)
        ended = chief.ended()
        assert ended.code == 1, ended
        assert ended.err.count("a parameter server is lost") == 1 and "Traceback" not in ended.err
        assert "ps 1 (127.0.0.1:" in ended.err.splitlines()[-1]
        saved = newest_step(workdir)
        cluster.start("ps", 1)
        again = cluster.start("chief", 0).ended()
        assert again.code == 0, again.err
        assert f"resuming at step {saved}" in again.err
    assert steps(workdir) > saved


def steps(workdir: pathlib.Path) -> int:
    """The last step that was logged; 0 if there is none."""
    return max((int(line["step"]) for line in logged(workdir)), default=0)
