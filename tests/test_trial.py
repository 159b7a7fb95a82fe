"""lexrow cluster as the one that starts, watches and ends the processes of a run, by stand-ins."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys

import pytest

from app.distributed import cluster_spec, local_cluster, process_watcher
from app.errors import RunError
from app.settings.addresses import is_address
from app.system import ports
from tests.integration.commands import ROOT, SECONDS, refusal, run
from tests.processes import is_running, listening, until


@contextlib.contextmanager
def launched(folder: pathlib.Path, *flags: str, corpus: str = "good"):
    """lexrow cluster of stand-ins; the files `out` and `err` have what it says."""
    more = ["--", f"--workdir={folder}/run", f"--corpus={corpus}"]
    with open(folder / "out", "w") as out, open(folder / "err", "w") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.stand_in", "--launch", *flags, *more],
            cwd=ROOT,
            stdout=out,
            stderr=err,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        until(lambda: not any(map(is_running, started(folder))))


def started(folder: pathlib.Path) -> dict[int, str]:
    """Process id -> name of all that were started."""
    found = (path.name.split(".") for path in (folder / "run").glob("*-*.*"))
    return {int(pid): name for name, pid in found if pid.isdecimal()}


def ended(folder: pathlib.Path, *flags: str, corpus: str = "good") -> int:
    """The exit code of lexrow cluster, once it has ended with all that it started."""
    with launched(folder, *flags, corpus=corpus) as process:
        code = process.wait(SECONDS)
        assert not any(map(is_running, started(folder)))
    assert "Traceback" not in (folder / "err").read_text()
    return code


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "tasks"),
    [
        (["--workers=2", "--ps=2"], ["chief-0", "worker-0", "worker-1", "ps-0", "ps-1"]),
        (["--workers=2"], ["worker-0", "worker-1"]),
    ],
)
def test_it_starts_all_and_ends_with_the_chief(tmp_path, flags, tasks):
    assert ended(tmp_path, *flags) == 0
    assert sorted(started(tmp_path).values()) == sorted(tasks)
    _, *lines, last = (tmp_path / "out").read_text().splitlines()
    assert last == "the chief trains" and not (tmp_path / "err").read_text()
    strategy = "parameter_server" if "chief-0" in tasks else "multi_worker"
    told = set()
    for line in lines:
        variable, *command = shlex.split(line)
        text = variable.removeprefix("TF_CONFIG=")
        found = cluster_spec.parse_tf_config(strategy, text)
        told.add(f"{found.kind}-{found.index}")
        assert command[:2] == ["lexrow", "train"] and command[-1] == f"--strategy={strategy}"
        (mine,) = (tmp_path / "run").glob(f"{found.kind}-{found.index}.*")
        assert json.loads(mine.read_text()) == [command[2:], json.loads(text)]
    assert told == set(tasks)


@pytest.mark.slow
def test_a_worker_that_is_killed_is_started_again(tmp_path):
    assert ended(tmp_path, "--workers=2", "--ps=1", "--kill_worker_after=0.1") == 0
    killed, again = (tmp_path / "err").read_text().splitlines()
    assert re.fullmatch(r"killing worker 1, 0\.\d s after the start of training", killed)
    assert again == "worker 1 ended (signal 9); starting it again"
    counts = list(started(tmp_path).values())
    assert [counts.count(name) for name in ("worker-1", "worker-0", "ps-0")] == [2, 1, 1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("corpus", "code", "last"),
    [
        ("refused", 2, "train: --corpus=refused: no"),
        ("failing", 1, "cluster: worker 1 keeps ending: train: no memory"),
        ("serverless", 1, "train: ps 0 is gone"),
    ],
)
def test_what_goes_wrong_ends_all_of_it(tmp_path, corpus, code, last):
    assert ended(tmp_path, "--workers=2", "--ps=1", corpus=corpus) == code
    assert (tmp_path / "err").read_text().splitlines()[-1] == last


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_it_stops_with_all_of_it(tmp_path, number):
    with launched(tmp_path, "--workers=2", "--ps=1", corpus="endless") as process:
        until(lambda: "the chief trains" in (tmp_path / "out").read_text())
        process.send_signal(number)
        assert process.wait(SECONDS) == (-number if number == signal.SIGKILL else 1)
        until(lambda: not any(map(is_running, started(tmp_path))))
    saved = "the chief saves" in (tmp_path / "out").read_text()
    assert saved == (number != signal.SIGKILL) and not (tmp_path / "err").read_text()


@pytest.mark.slow
def test_a_chief_that_is_killed(tmp_path):
    with launched(tmp_path, "--workers=2", "--ps=1", corpus="endless") as process:
        until(lambda: "the chief trains" in (tmp_path / "out").read_text())
        (chief,) = (pid for pid, name in started(tmp_path).items() if name == "chief-0")
        os.kill(chief, signal.SIGKILL)
        assert process.wait(SECONDS) == 128 + signal.SIGKILL
        assert not any(map(is_running, started(tmp_path)))
    line = "the chief was ended by signal 9; run the same command to continue\n"
    assert (tmp_path / "err").read_text() == line


class Ended:
    """A process that has ended."""

    name = "ps 1"

    def __init__(self, code):
        self.code, self.revived = code, 0

    def restart_if_ended(self):
        self.revived += 1

    def reason(self):
        return "gone"


def test_who_is_started_again(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(process_watcher.time, "monotonic", lambda: clock[0])
    workers = {("worker", index): Ended(code) for index, code in enumerate((-9, 1, 0))}
    watcher = process_watcher.Watcher(workers, True, None)
    watcher.check(None)
    assert [process.revived for process in workers.values()] == [1, 1, 0]
    watcher.is_stopping = True  # then one that was asked to stop has done so
    watcher.check(None)
    assert [process.revived for process in workers.values()] == [2, 1, 0]
    for task, code, training, seconds in (
        (("ps", 1), -9, 5.0, 60),
        (("ps", 1), 1, None, 60),
        (("worker", 1), 2, None, 20),
    ):
        watcher = process_watcher.Watcher({task: Ended(code)}, True, None)
        watcher.check(training)
        clock[0] += seconds - 1
        watcher.check(training)
        clock[0] += 2
        with pytest.raises(
            RunError, match="^ps 1 ended, and the chief still runs without it: gone$"
        ):
            watcher.check(training)


def test_a_worker_that_may_be_missing(monkeypatch, caplog):
    clock = [0.0]
    monkeypatch.setattr(process_watcher.time, "monotonic", lambda: clock[0])
    for servers in (1, 0):
        watcher = process_watcher.Watcher({("worker", 1): Ended(2)}, servers > 0, None)
        watcher.check(5.0)
        clock[0] += 1000
        with contextlib.nullcontext() if servers else pytest.raises(RunError):
            watcher.check(5.0)
    assert caplog.messages == ["ps 1 is missing from now on: gone"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("", "--workers=0 --data_workers=0: give the number to start, such as --workers=2"),
        ("--workers=-1", "--workers=-1: -1 is not an integer in the range [0, 1000]"),
        ("--data_workers=-1", "--data_workers=-1: -1 is not an integer in the range"),
        ("--workers=100000", "--workers=100000: 100000 is not an integer in the range"),
        (
            "--workers=2 --kill_worker_after=nan",
            "--kill_worker_after=nan: nan is not a number in the range",
        ),
        ("--ps=2", "--ps=2: give --workers as well, such as --workers=2"),
        ("--data_workers=1 -- --dim=3", "--dim=3: nothing is trained without --workers"),
        ("--workers=2", "--workers=2: give the flags of the run to train, as in -- --fl"),
        (
            "--workers=2 --dim=3",
            "--dim=3 is a flag of `lexrow train`; write it after the others and a --",
        ),
        ("--workers=2 -- --ps=3", "--ps is a flag of `lexrow cluster`; write it before the --"),
        ("--workers=2 -- stray", "'stray' is not a flag; write it as --NAME=VALUE"),
        ("--workers=2 -- --no_such=1", "no_such"),
        ("--workers=2 -- --workdir=run --dim=0", "--dim=0: give at least 1"),
        ("--workers=2 -- --dim=3", "--workdir= is empty; name a folder"),
        (
            "--workers=2 -- --strategy=mirrored",
            "--strategy=mirrored: `lexrow cluster` adds --strategy=multi_worker itself",
        ),
        (
            "--workers=2 --data_workers=1 -- --data_service=a:1",
            "--data_service=a:1: `lexrow cluster` adds --data_service=127.0.0.1:",
        ),
        ("--workers=1 --kill_worker_after=2 -- --dim=3", "there is no worker but the chief; give"),
        (
            "--workers=2 --kill_worker_after=-1 -- --dim=3",
            "--kill_worker_after=-1: -1.0 is not a number in the range",
        ),
        (
            "--workers=2 --port=65536 -- --dim=3",
            "--port=65536: 65536 is not an integer in the range",
        ),
        ("--workers=3 --port=65534 -- --dim=3", "--port=65534: 3 ports are needed from there"),
    ],
)
def test_flags_that_cannot_be(tmp_path, flags, message):
    line = refusal(run(tmp_path, "app.cluster", *flags.split()))
    assert line.startswith("cluster: ") and message in line
    assert not (tmp_path / "run").exists()


def test_ports_that_are_taken(tmp_path):
    (port,) = ports.free(1)
    with listening(port):
        for first, which in ((port, ""), (port - 1, f"port {port} is ")):
            line = refusal(
                run(tmp_path, "app.cluster", "--workers=2", f"--port={first}", "--", "-")
            )
            assert f"--port={first}: {which}in use; choose another, or leave it out" in line


def test_another_run_in_the_workdir(tmp_path):
    with local_cluster.Workdir(tmp_path / "run").lock():
        flags = ("--workers=2", "--", f"--workdir={tmp_path}/run")
        assert "another job is running there" in refusal(run(tmp_path, "app.cluster", *flags))


@pytest.mark.slow
def test_a_data_service_beside_it(tmp_path):
    assert ended(tmp_path, "--workers=2", "--data_workers=1") == 0
    (mine,) = (tmp_path / "run").glob("worker-1.*")
    flags, config = json.loads(mine.read_text())
    address = flags[-1].removeprefix("--data_service=")
    assert is_address(address) and address not in config["cluster"]["worker"]


def test_when_training_began(tmp_path, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(process_watcher.time, "monotonic", lambda: clock[0])
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n')
    began = process_watcher.TrainingClock(path)
    (tmp_path / "new").write_text('{"step": 1}\n')  # as a run does that goes on from step 1
    (tmp_path / "new").rename(path)
    assert began.seconds() is None
    with open(path, "a") as file:
        file.write('{"step": 2}\n')
    assert began.seconds() == 0.0
    clock[0] += 3.0
    assert began.seconds() == 3.0
