"""Run a cluster or a tf.data service as processes on this machine, and restart lost ones."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from absl import logging

from ..checkpoints.workdir import Workdir
from ..errors import UsageError
from ..settings import RunConfig
from ..system import ports
from ..system.processes import Process, terminate
from ..system.signals import asked_to_stop
from .cluster_spec import Hosts, Task
from .process_watcher import TrainingClock, Watcher

HOST = "127.0.0.1"
MODULE = f"{__name__.partition('.')[0]}.train"  # the program of each process of a run
_WATCH_SECONDS = 0.2
_END_SECONDS = 5.0  # for the others to end after the chief


def serve_data(workers: int, port: int) -> None:
    """Run a tf.data service until SIGINT or SIGTERM, and print its address.

    A server that dies is started again. No server is left running, however this process ends.

    Args:
        workers: The number of workers.
        port: The port of the dispatcher; 0 for any free one.

    Raises:
        UsageError: The port is in use.
        RunError: A server cannot be started, or keeps ending.
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
                server.restart_if_ended()


def choose_ports(count: int, first: int) -> list[int]:
    """Return ports of this machine that are free now: consecutive ones, or any.

    Args:
        count: The number of ports.
        first: The first of consecutive ports; 0 for any free ones.

    Raises:
        UsageError: A port is in use, or above 65535.
    """
    if not first:
        return ports.free(count)
    chosen = list(range(first, first + count))
    if chosen[-1] >= 2**16:
        raise UsageError(
            f"--port={first}: {count} ports are needed from there on, and 65535 is the last; give "
            "a lower port, or leave the flag out for free ones"
        )
    for port in chosen:
        reason = ports.taken(port)
        if reason:
            subject = "" if port == first else f"port {port} is "
            reason = "in use" if "in use" in reason else reason
            raise UsageError(
                f"--port={first}: {subject}{reason}; choose another, or leave it out for a free one"
            )
    return chosen


def make_hosts(workers: int, servers: int, ports: Sequence[int]) -> Hosts:
    """Return the description of the processes of a run on this machine; start none.

    With parameter servers there is a separate chief. Otherwise the first worker is the chief.

    Args:
        workers: The number of workers.
        servers: The number of parameter servers.
        ports: A port for each process, with one for a separate chief.

    Returns:
        The processes, as the first of them sees them.
    """
    addresses = iter(f"{HOST}:{port}" for port in ports)
    counts = {"chief": min(servers, 1), "worker": workers, "ps": servers}
    tasks = {job: tuple(next(addresses) for _ in range(n)) for job, n in counts.items() if n}
    return Hosts(tasks, next(iter(tasks)), 0)


def train(
    hosts: Hosts,
    arguments: Sequence[str],
    settings: RunConfig,
    data_workers: int = 0,
    data_port: int = 0,
    kill_worker_after: float | None = None,
) -> int:
    """Run all processes of a run until the chief ends, and show the output of the chief.

    The commands for several machines are printed first. A worker or data server that dies is
    started again. SIGINT and SIGTERM ask the chief to stop. No process is left running, however
    this one ends. With `settings.plan_only`, only the chief runs.

    Args:
        hosts: The processes of the run.
        arguments: The flags of `lexrow train`.
        settings: The settings of the run.
        data_workers: The number of workers of a tf.data service; 0 for no service.
        data_port: The port of the tf.data service.
        kill_worker_after: Seconds of training after which the last worker is killed; None for
            never.

    Returns:
        The exit code of the chief; 128 and its number for a signal that ended the chief.

    Raises:
        RunError: A worker or data server keeps ending, a data server cannot be started, or the
            chief does not notice that another process is lost.
        UsageError: Another run uses the workdir, or it cannot be written.
    """
    program, plan_only = ["-m", MODULE, *arguments], settings.plan_only
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(asked_to_stop())
        folder = stack.enter_context(_log_folder("" if plan_only else settings.workdir))
        services = stack.enter_context(_data_service(0 if plan_only else data_workers, data_port))
        # The chief is the first; it makes a plan without the others.
        tasks = hosts.everyone[: 1 if plan_only else None]
        processes = {task: _make_process(hosts, task, program, folder) for task in tasks}
        print(_announcement(hosts, arguments), flush=True)
        for process in reversed(processes.values()):  # the chief last
            stack.enter_context(process.running())
        chief = processes.pop(hosts.chief)
        watcher = Watcher(processes, "ps" in hosts.tasks, kill_worker_after)
        clock = TrainingClock(Path(settings.workdir, "metrics.jsonl"))
        while chief.code is None:
            if stop.is_set() and not watcher.is_stopping:
                watcher.is_stopping = True
                chief.send(signal.SIGTERM)
            watcher.check(clock.seconds())
            for service in services:
                service.restart_if_ended()
            time.sleep(_WATCH_SECONDS)
        terminate(list(processes.values()), _END_SECONDS)
        if chief.code >= 0:
            return chief.code
        logging.error(
            "the chief was ended by signal %d; run the same command to continue", -chief.code
        )
        return 128 - chief.code  # the exit code by which shells report a signal


def _announcement(hosts: Hosts, arguments: Sequence[str]) -> str:
    """Return a text with the commands that would start each process on a machine of its own."""
    head = "Starting these processes; on several machines use these commands with their addresses:"
    command = shlex.join(["lexrow", "train", *arguments])
    variables = [f"TF_CONFIG={shlex.quote(hosts.as_tf_config(*task))}" for task in hosts.everyone]
    return "\n".join([head, *(f"{variable} {command}" for variable in variables)])


def _make_process(hosts: Hosts, task: Task, program: Sequence[str], folder: Path) -> Process:
    """Return a process of a run, not started. All but the chief write their output to `folder`.

    Unless TF_NUM_INTRAOP_THREADS is set, a process gets an equal share of the cores as that.
    """
    kind, index = task
    share = max(1, (os.cpu_count() or 1) // len(hosts.tasks["worker"]))
    is_chief = task == hosts.chief
    return Process(
        "chief" if is_chief else f"{kind} {index}",
        program,
        None if is_chief else folder / f"{kind}-{index}.log",
        {
            "TF_CONFIG": hosts.as_tf_config(*task),
            "TF_NUM_INTRAOP_THREADS": os.environ.get("TF_NUM_INTRAOP_THREADS", str(share)),
        },
    )


@contextlib.contextmanager
def _log_folder(workdir: str) -> Iterator[Path]:
    """Yield the folder for logs: `cluster` in the workdir, or a temporary one if `workdir` is "".

    The workdir is made and locked for a moment, to see whether another run uses it, which removes
    half-written files there. The lock is free again during the block.

    Raises:
        UsageError: Another run uses the workdir, or it cannot be written.
    """
    if not workdir:
        with tempfile.TemporaryDirectory() as name:
            yield Path(name)
        return
    place = Workdir(workdir)
    with place.lock():  # fails if another run uses the workdir
        folder = place.path / "cluster"
        folder.mkdir(exist_ok=True)
    yield folder


@contextlib.contextmanager
def _data_service(workers: int, port: int) -> Iterator[list[Process]]:
    """Run a dispatcher and workers of a tf.data service, and yield them once they are ready.

    They are killed at the end of the block. For 0 workers, run nothing and yield [].

    Args:
        workers: The number of workers.
        port: The port of the dispatcher.

    Raises:
        RunError: A server ended before it was ready.
    """
    if not workers:
        yield []
        return
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)

        def start(title: str, *arguments: str) -> Process:
            """Start a server of the service, and return its process."""
            program = ["-m", f"{__package__}.data_server", *arguments]
            server = Process(title, program, folder / f"{title}.log", prints_address=True)
            return stack.enter_context(server.running())

        dispatcher = start("data dispatcher", "data_dispatcher", str(port), f"{folder}/journal")
        dispatcher.address()  # workers need a dispatcher that is ready
        address = f"{HOST}:{port}"
        servers = [start(f"data worker {n}", "data_worker", address) for n in range(1, workers + 1)]
        for server in servers:
            server.address()
        yield [dispatcher, *servers]
