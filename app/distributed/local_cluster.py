"""Run the processes of a cluster on this machine, and start lost workers again."""

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
from ..settings import RunConfig
from ..system import ports
from ..system.files import remove_folder
from ..system.processes import Process, terminate
from ..system.signals import asked_to_stop
from .cluster_spec import Hosts, Task

HOST = "127.0.0.1"
MODULE = f"{__name__.partition('.')[0]}.train"  # the program of each process of a run
_WATCH_SECONDS = 0.2
_END_SECONDS = 5.0  # for the others to end after the chief
_USAGE_ERROR = 2  # the exit code of a process whose flags were refused


def make_hosts(workers: int) -> Hosts:
    """Return the processes of a run on free ports of this machine; the first worker is the chief.

    No process is started.
    """
    return Hosts({"worker": tuple(f"{HOST}:{port}" for port in ports.free(workers))}, "worker", 0)


def train(hosts: Hosts, arguments: Sequence[str], settings: RunConfig) -> int:
    """Run all processes of a run until the chief ends, and show the output of the chief.

    The commands for several machines are printed first. A worker that dies is started again.
    SIGINT and SIGTERM ask the chief to stop. No process is left running, however this one ends.
    With `settings.plan_only`, only the chief runs.

    Returns:
        The exit code of the chief; 128 and its number for a signal that ended the chief.

    Raises:
        RunError: A worker keeps ending.
        UsageError: Another run uses the workdir, or it cannot be written.
    """
    program, plan_only = ["-m", MODULE, *arguments], settings.plan_only
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(asked_to_stop())
        folder = stack.enter_context(_log_folder("" if plan_only else settings.workdir))
        # The chief is the first; it makes a plan without the others.
        tasks = hosts.everyone[: 1 if plan_only else None]
        chief, *others = [_make_process(hosts, task, program, folder) for task in tasks]
        print(_announcement(hosts, arguments), flush=True)
        for process in (*others, chief):
            stack.enter_context(process.running())
        is_stopping = False
        while chief.code is None:
            if stop.is_set() and not is_stopping:
                is_stopping = True
                chief.send(signal.SIGTERM)
            watch(others, is_stopping)
            time.sleep(_WATCH_SECONDS)
        terminate(others, _END_SECONDS)
        if chief.code >= 0:
            return chief.code
        logging.error(
            "the chief was ended by signal %d; run the same command to continue", -chief.code
        )
        return 128 - chief.code  # the exit code by which shells report a signal


def watch(processes: list[Process], is_stopping: bool) -> None:
    """Start dead workers again; log and forget those that have ended for good.

    These have succeeded, refused their flags, or ended without a signal after the chief was asked
    to stop. The chief notices within --cluster_timeout that they are missing.

    Args:
        processes: The processes without the chief; those that have ended for good are removed.
        is_stopping: Whether the chief was asked to stop.

    Raises:
        RunError: A worker keeps ending.
    """
    for process in list(processes):
        code = process.code
        if code is None or code < 0 or not (is_stopping or code in (0, _USAGE_ERROR)):
            process.restart_if_ended()
            continue
        processes.remove(process)
        if code and not is_stopping:
            logging.warning("%s is missing from now on: %s", process.name, process.reason())


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
    share = max(1, (os.cpu_count() or 1) // len(hosts.everyone))
    return Process(
        f"{kind} {index}" if index else "chief",
        program,
        folder / f"{kind}-{index}.log" if index else None,
        {
            "TF_CONFIG": hosts.as_tf_config(*task),
            "TF_NUM_INTRAOP_THREADS": os.environ.get("TF_NUM_INTRAOP_THREADS", str(share)),
        },
    )


@contextlib.contextmanager
def _log_folder(workdir: str) -> Iterator[Path]:
    """Yield the folder for logs: `cluster` in the workdir, or a temporary one if `workdir` is "".

    The workdir is made and locked for a moment, to see whether another run uses it, which removes
    half-written files there. The lock is free again during the block. Folders that were made here
    go at its end if the run wrote nothing: a refused start leaves nothing behind.
    """
    if not workdir:
        with tempfile.TemporaryDirectory() as name:
            yield Path(name)
        return
    place = Workdir(workdir)
    folder = place.path / "cluster"
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    with place.lock():  # fails if another run uses the workdir
        folder.mkdir(exist_ok=True)
    yield folder
    if made and {path.name for path in place.path.iterdir()} <= {folder.name, "lock"}:
        remove_folder(folder)
        (place.path / "lock").unlink(missing_ok=True)
        for path in made[1:]:
            path.rmdir()
