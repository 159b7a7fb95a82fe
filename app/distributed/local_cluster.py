"""Servers and trainers on this machine as processes, watched and started again."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from absl import logging

from .. import __name__ as PACKAGE
from ..checkpoints.workdir import Workdir
from ..config import RunConfig
from ..errors import RunError, UsageError
from ..system import ports
from ..system.processes import Process, end
from ..system.signals import asked_to_stop
from .cluster_spec import Hosts, Task

HOST = "127.0.0.1"
_WATCH_SECONDS = 0.2
# For the chief to end by itself once a server has, or once another process was refused what it was
# asked for (an exit code), which the chief is as well; and for the others once the chief has ended.
_GONE_SECONDS, _REFUSED_SECONDS, _END_SECONDS = 60.0, 20.0, 5.0
_REFUSED = 2


def serve_data(workers: int, port: int) -> None:
    """Runs a tf.data service with so many workers until SIGINT or SIGTERM; says its address.

    port: of its dispatcher on this machine, 0 for any that is free. A server that dies is started
    again. UsageError for a port that is in use, RunError when a server cannot be started. No server
    is left running, however this process ends.
    """
    (port,) = choose_ports(1, port)
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(asked_to_stop())
        servers = stack.enter_context(_data_service(workers, port))
        print(
            f"tf.data service with {workers} workers; Ctrl-C ends it. Train with:\n"
            f"--data_service={HOST}:{port} --cache=none",
            flush=True,
        )
        while not stop.wait(_WATCH_SECONDS):
            for server in servers:
                server.revive()


def choose_ports(count: int, first: int) -> list[int]:
    """So many ports of this machine, from `first` on; any that are free for 0.

    UsageError for a port that cannot be had.
    """
    if not first:
        return ports.free(count)
    chosen = list(range(first, first + count))
    if chosen[-1] >= 2**16:
        raise UsageError(
            f"--port={first}: {count} are needed from there on, and 65535 is the last; give less, "
            "or leave it out for free ones"
        )
    for port in chosen:
        reason = ports.taken(port)
        if reason:
            which = "" if port == first else f"port {port} is "
            reason = "in use" if "in use" in reason else reason
            raise UsageError(
                f"--port={first}: {which}{reason}; choose another, or leave it out for a free one"
            )
    return chosen


@dataclasses.dataclass(frozen=True)
class Trial:
    """A distributed run on this machine.

    hosts: of any of its processes; arguments: the flags of app.train; data_workers: of a tf.data
    service at data_port, 0 for none; kill_worker_after: seconds of training after which the last
    worker is killed, None for never.
    """

    hosts: Hosts
    arguments: Sequence[str]
    data_workers: int = 0
    data_port: int = 0
    kill_worker_after: float | None = None
    module: str = f"{PACKAGE}.train"


def make_hosts(workers: int, servers: int, free: Sequence[int]) -> Hosts:
    """The processes of a run with so many workers and parameter servers, at these ports.

    With servers there is a chief beside the workers, else the first worker is the chief.
    """
    addresses = iter(f"{HOST}:{port}" for port in free)
    counts = {"chief": min(servers, 1), "worker": workers, "ps": servers}
    tasks = {job: tuple(next(addresses) for _ in range(n)) for job, n in counts.items() if n}
    return Hosts(tasks, next(iter(tasks)), 0)


def train(trial: Trial, settings: RunConfig) -> int:
    """Starts the processes, passes the chief's output on, and gives its exit code.

    A worker that dies is started again. SIGINT or SIGTERM ask the chief to stop. RunError where a
    worker keeps ending, or where the chief does not end though others have. No process is left
    running, however this one ends.
    """
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(asked_to_stop())
        folder = stack.enter_context(_logs("" if settings.plan_only else settings.workdir))
        data_workers = 0 if settings.plan_only else trial.data_workers
        services = stack.enter_context(_data_service(data_workers, trial.data_port))
        tasks = trial.hosts.everyone[: 1 if settings.plan_only else None]  # the chief is the first
        processes = {task: _process(trial, task, folder) for task in tasks}
        print(announcement(trial), flush=True)
        for process in reversed(processes.values()):  # the chief last
            stack.enter_context(process.running())
        chief = processes.pop(trial.hosts.chief)
        others = _Others(trial, processes)
        began = _Began(Path(settings.workdir, "metrics.jsonl"))
        while chief.code is None:
            if stop.is_set() and not others.ending:
                others.ending = True
                chief.send(signal.SIGTERM)
            others.look(began.seconds())
            for service in services:
                service.revive()
            time.sleep(_WATCH_SECONDS)
        end(list(processes.values()), _END_SECONDS)
        if chief.code >= 0:
            return chief.code
        logging.error("the chief was ended by signal %d; run the same again to go on", -chief.code)
        return 128 - chief.code  # as shells tell of a signal


def announcement(trial: Trial) -> str:
    """The command of each process, as it could be given on a machine of its own."""
    command = shlex.join(["python", "-m", trial.module, *trial.arguments])
    lines = [
        f"TF_CONFIG={shlex.quote(trial.hosts.as_tf_config(*task))} {command}"
        for task in trial.hosts.everyone
    ]
    head = "Starting here what would start so elsewhere, with the addresses of those machines:"
    return "\n".join([head, *lines])


class _Others:
    """The processes of a trial but its chief. ending: whether the chief was asked to stop."""

    def __init__(self, trial: Trial, processes: Mapping[Task, Process]):
        self.ending = False
        self._processes = processes
        self._is_asynchronous = "ps" in trial.hosts.tasks
        self._kill_after = trial.kill_worker_after
        self._lost: dict[Task, float] = {}  # when those ended that are not started again

    def look(self, training: float | None) -> None:
        """Starts those again that died; kills the last worker once, when it is time for that.

        training: for how many seconds the chief has trained, None before. RunError if a process
        keeps ending, or if the chief does not notice an end that it has to.
        """
        for task, process in self._processes.items():
            if process.code is None:
                continue
            if self._may_die(task, process.code):
                process.revive()
            elif process.code and not self.ending:
                self._lose(task, process, training)
        if training is None or self._kill_after is None or training < self._kill_after:
            return
        self._kill_after = None
        victim = self._processes[max(task for task in self._processes if task[0] == "worker")]
        logging.info("killing %s, %.1f s after the start of training", victim.name, training)
        victim.send(signal.SIGKILL)

    def _lose(self, task: Task, process: Process, training: float | None) -> None:
        """Gives the chief time to notice an end, if it cannot go on without."""
        refused = process.code == _REFUSED
        spare = refused and self._is_asynchronous and training is not None
        if task not in self._lost:
            self._lost[task] = time.monotonic()
            if spare:
                logging.warning("%s is missing from now on: %s", process.name, process.reason())
        waited = time.monotonic() - self._lost[task]
        if not spare and waited > (_REFUSED_SECONDS if refused else _GONE_SECONDS):
            raise RunError(f"{process.name} ended, and the chief goes on: {process.reason()}")

    def _may_die(self, task: Task, code: int) -> bool:
        """Whether it is to be started again: not a server, whose rows are gone with it."""
        finished = code >= 0 and (self.ending or code in (0, _REFUSED))
        return task[0] == "worker" and not finished


class _Began:
    """When the chief of a run began to train: its metrics.jsonl has got a line."""

    def __init__(self, path: Path):
        self._path = path
        self._seen = self._state()
        self._since: float | None = None

    def seconds(self) -> float | None:
        """How long ago that was; None if it was not."""
        seen = self._state()
        # The file is made anew, without the lines that come after the checkpoint, by a run that
        # goes on.
        if self._since is None and seen[0] == self._seen[0] and seen[1] > self._seen[1]:
            self._since = time.monotonic()
        self._seen = seen
        return None if self._since is None else time.monotonic() - self._since

    def _state(self) -> tuple[int, int]:
        """Which file it is, and its bytes."""
        try:
            found = self._path.stat()
        except OSError:
            return 0, 0
        return found.st_ino, found.st_size


def _process(trial: Trial, task: Task, folder: Path) -> Process:
    kind, index = task
    chief = task == trial.hosts.chief
    cores = os.cpu_count() or 1
    share = max(1, cores // len(trial.hosts.tasks["worker"]))
    return Process(
        "chief" if chief else f"{kind} {index}",
        ["-m", trial.module, *trial.arguments],
        None if chief else folder / f"{kind}-{index}.log",
        {
            "TF_CONFIG": trial.hosts.as_tf_config(*task),
            "TF_NUM_INTRAOP_THREADS": os.environ.get("TF_NUM_INTRAOP_THREADS", str(share)),
        },
    )


@contextlib.contextmanager
def _logs(workdir: str) -> Iterator[Path]:
    """The folder for what the processes say: in the workdir, if there is one."""
    if not workdir:
        with tempfile.TemporaryDirectory() as name:
            yield Path(name)
        return
    place = Workdir(workdir)
    with place.held():  # no other run writes there at this moment
        folder = place.path / "cluster"
        folder.mkdir(exist_ok=True)
    yield folder


@contextlib.contextmanager
def _data_service(workers: int, port: int) -> Iterator[list[Process]]:
    """A dispatcher and so many workers of a tf.data service, once they are ready; none for 0."""
    with contextlib.ExitStack() as stack:
        if not workers:
            yield []
            return
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        roles = {"data dispatcher": ("data_dispatcher", str(port), str(folder / "journal"))}
        for number in range(1, workers + 1):
            roles[f"data worker {number}"] = ("data_worker", f"{HOST}:{port}")
        servers = []
        for name, arguments in roles.items():
            log = folder / f"{name}.log"
            server = Process(
                name, ["-m", f"{PACKAGE}.distributed.server", *arguments], log, says=True
            )
            servers.append(stack.enter_context(server.running()))
            if len(servers) == 1:
                server.address()  # before it is looked for
        for server in servers[1:]:
            server.address()
        yield servers
