"""lexrow cluster as the one that starts, watches and ends the processes of a run, by stand-ins."""

import contextlib
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys

import pytest

from app.distributed import cluster_spec, local_cluster
from tests.integration.commands import ROOT, SECONDS, refused
from tests.processes import is_running, until


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
def test_it_starts_all_and_ends_with_the_chief(tmp_path):
    tasks = ["worker-0", "worker-1", "worker-2"]
    assert ended(tmp_path, "--workers=3") == 0
    assert sorted(started(tmp_path).values()) == tasks
    _, *lines, last = (tmp_path / "out").read_text().splitlines()
    assert last == "the chief trains" and not (tmp_path / "err").read_text()
    told = set()
    for line in lines:
        variable, *command = shlex.split(line)
        text = variable.removeprefix("TF_CONFIG=")
        found = cluster_spec.parse_tf_config("multi_worker", text)
        told.add(f"{found.kind}-{found.index}")
        assert command[:2] == ["lexrow", "train"] and command[-1] == "--strategy=multi_worker"
        (mine,) = (tmp_path / "run").glob(f"{found.kind}-{found.index}.*")
        assert json.loads(mine.read_text()) == [command[2:], json.loads(text)]
    assert told == set(tasks)


def kill(folder: pathlib.Path, worker: str) -> None:
    """Kills a worker once the chief trains."""
    until(lambda: "the chief trains" in (folder / "out").read_text())
    (pid,) = (pid for pid, name in started(folder).items() if name == worker)
    os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_worker_that_is_killed_is_started_again(tmp_path):
    with launched(tmp_path, "--workers=3") as process:
        kill(tmp_path, "worker-1")
        assert process.wait(SECONDS) == 0
    assert (tmp_path / "err").read_text() == "worker 1 ended (signal 9); starting it again\n"
    counts = list(started(tmp_path).values())
    assert [counts.count(name) for name in ("worker-1", "worker-0", "worker-2")] == [2, 1, 1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("corpus", "code", "last"),
    [
        ("refused", 2, "train: --corpus=refused: no"),
        ("failing", 1, "cluster: worker 1 keeps ending: train: no memory"),
    ],
)
def test_what_goes_wrong_ends_all_of_it(tmp_path, corpus, code, last):
    assert ended(tmp_path, "--workers=3", corpus=corpus) == code
    assert (tmp_path / "err").read_text().splitlines()[-1] == last


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_it_stops_with_all_of_it(tmp_path, number):
    with launched(tmp_path, "--workers=3", corpus="endless") as process:
        until(lambda: "the chief trains" in (tmp_path / "out").read_text())
        process.send_signal(number)
        assert process.wait(SECONDS) == (-number if number == signal.SIGKILL else 1)
        until(lambda: not any(map(is_running, started(tmp_path))))
    saved = "the chief saves" in (tmp_path / "out").read_text()
    assert saved == (number != signal.SIGKILL) and not (tmp_path / "err").read_text()


@pytest.mark.slow
def test_a_chief_that_is_killed(tmp_path):
    with launched(tmp_path, "--workers=3", corpus="endless") as process:
        kill(tmp_path, "worker-0")
        assert process.wait(SECONDS) == 128 + signal.SIGKILL
        assert not any(map(is_running, started(tmp_path)))
    line = "the chief was ended by signal 9; run the same command to continue\n"
    assert (tmp_path / "err").read_text() == line


class Ended:
    """A process that has ended."""

    name = "worker 1"

    def __init__(self, code):
        self.code, self.revived = code, 0

    def restart_if_ended(self):
        self.revived += 1

    def reason(self):
        return "gone"


def test_who_is_started_again():
    workers = [Ended(code) for code in (-9, 1, 0)]
    left = list(workers)
    local_cluster.watch(left, is_stopping=False)
    assert [process.revived for process in workers] == [1, 1, 0]
    local_cluster.watch(left, is_stopping=True)  # then one that was asked to stop has done so
    assert [process.revived for process in workers] == [2, 1, 0]
    assert left == workers[:1]


def test_who_is_missing_is_named_once(caplog):
    left = [Ended(2)]
    for _ in range(2):
        local_cluster.watch(left, is_stopping=False)
    assert caplog.messages == ["worker 1 is missing from now on: gone"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--workers=100000", "cluster: --workers=100000: give at most 1000"),
        ("--workers=2", "--workers=2: give the flags of the run to train, as in -- --preset"),
        (
            "--workers=2 --dim=3",
            "--dim=3 is a flag of `lexrow train`; write it after the others and a --",
        ),
        ("-- --workers=3", "--workers is a flag of `lexrow cluster`; write it before the --"),
        ("--workers=2 --ps=2 -- --dim=3", "--ps=2: parameter servers are gone; leave it out"),
        ("--workers=2 -- stray", "'stray' is not a flag; write it as --NAME=VALUE"),
        ("--workers=2 -- --no_such=1", "no_such"),
        ("--workers=2 -- --workdir=run --dim=0", "--dim=0: give at least 1"),
        ("--workers=2 -- --dim=3", "--workdir= is empty; name a folder"),
        (
            "--workers=2 -- --strategy=mirrored",
            "--strategy=mirrored: `lexrow cluster` adds --strategy=multi_worker itself",
        ),
    ],
)
def test_flags_that_cannot_be(tmp_path, flags, message):
    line = refused(tmp_path, "app.cluster", *flags.split())
    assert line.startswith("cluster: ") and message in line
    assert not (tmp_path / "run").exists()


def test_another_run_in_the_workdir(tmp_path):
    with local_cluster.Workdir(tmp_path / "run").lock():
        flags = ("--workers=2", "--", f"--workdir={tmp_path}/run")
        assert "another job is running there" in refused(tmp_path, "app.cluster", *flags)


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_refused_start_leaves_nothing(tmp_path, is_refused):
    workdir = tmp_path / "runs" / "one"
    with local_cluster._log_folder(str(workdir)) as folder:
        (folder / "worker-1.log").write_text("train: --corpus=x: no such file")
        if not is_refused:
            (workdir / "flags.cfg").touch()
    assert folder.exists() is not is_refused
    assert (tmp_path / "runs").exists() is not is_refused
