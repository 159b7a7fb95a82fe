"""Bring the processes of a run together by notes in the workdir, and notice which of them are gone.

Each process has a note in the folder `cluster` of the workdir, and holds a lock on it as long as it
lives: the system frees the lock when the process ends, however it ends. The note of the chief has
its flags and versions. Every other process compares itself with them, and reports the result in its
own note. When all have reported, the chief adds the answer to its note. So all processes end with
the same message. The start of TensorFlow's servers cannot be interrupted and does not name missing
processes, so workers in step meet before it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import json
import os
import platform
import secrets
import socket
import sys
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import tensorflow as tf
from absl import logging

from ..errors import RunError, UsageError
from ..settings.setting import as_text
from ..system import ports
from .cluster_spec import Hosts, Task

# Flags that may differ: paths and speed of a machine, and flags that only the chief uses.
_MAY_DIFFER = (
    "workdir data_dir device device_memory intra_op_threads map_parallelism prefetch cache "
    "log_seconds checkpoint_minutes keep_checkpoints profile_steps "
    "cluster_timeout"
)
_PACKAGES = {
    "TensorFlow": "tensorflow",
    "TensorFlow Text": "tensorflow-text",
    "NumPy": "numpy",  # batches depend on its random numbers
}
# What to do where processes differ, by the beginning of the label of a value.
_REMEDIES = {
    "--": "start every process with the same flags",
    "TF_CONFIG": "give every process the same one",
    "revision": "install the same revision everywhere",
    "": "install the same lock file everywhere",
}
_ANSWERS = {"go", "failed", "refused"}  # keys of the note of the chief
# TensorFlow's errors when another process is gone.
_LOST_PROCESS_ERRORS = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
)
_PAUSE_SECONDS = 0.2  # between two attempts
_LOCK_SECONDS = 10.0  # for the process before this one to end
_REPORT_SECONDS = 5.0  # of waiting; processes that are started together wait less
_WATCH_SECONDS = 1.0  # between two looks at a chief that is there


class Presence:
    """This process among the processes of a run, until it ends or this object is deleted.

    The constructor waits until every process of the run has come here. A process that is started
    again may find a chief that still trains. It waits until that chief notices the loss and starts
    again, too.

    Args:
        flags: The value of every flag of the run by name, which others must have, too.
        hosts: The processes.

    Raises:
        UsageError: A process differs from the chief, another process has the place of this one in
            the workdir, or the workdir cannot be written.
        RunError: Processes did not arrive within --cluster_timeout; the message names them.
    """

    def __init__(self, flags: Mapping[str, Any], hosts: Hosts):
        self._hosts, self._seconds = hosts, flags["cluster_timeout"]
        self._workdir = flags["workdir"]
        self._description = describe(flags, hosts)
        self._file = self._lock_note()
        weakref.finalize(self, self._file.close)
        self._first = self._since = time.monotonic()  # of the wait, and of --cluster_timeout
        self._is_logged = False
        # The start of the chief that this process has met, as a text of its note.
        self._start = ""
        if hosts.is_chief:
            self._receive_all()
        else:
            self._report_to_chief()

    def missing(self, tasks: Iterable[Task]) -> list[Task]:
        """Return the processes that have ended, or have not come yet."""
        return [task for task in tasks if not self._is_alive(task)]

    def wait_for_end_of_chief(self) -> None:
        """Wait until the chief that this process has met has ended, or was started again."""
        chief = self._hosts.chief
        while self._is_alive(chief):
            if self._read(chief).get("start", self._start) != self._start:
                return
            time.sleep(_WATCH_SECONDS)

    def _receive_all(self) -> None:
        """Wait, as the chief, for a report of each other process, then answer all of them.

        A process that is gone before the answer must report again.
        """
        self._start = secrets.token_hex(8)
        note = {"start": self._start, "description": self._description}
        self._write(note)
        others = self._hosts.others
        try:
            while absent := [task for task in others if not self._has_reported(task)]:
                self._wait(absent)
        except RunError as error:
            self._write(note | {"failed": str(error)})
            raise
        differences = [text for task in others if (text := self._read(task).get("refused"))]
        answer = {"refused": min(differences)} if differences else {"go": ""}
        self._write(note | answer)
        _raise_error(answer)

    def _report_to_chief(self) -> None:
        """Report to the chief, and to each new start of it, until it has answered.

        If the chief trains already, this waits as long as that chief is there.
        """
        chief = self._hosts.chief
        while True:
            note, is_there = self._read(chief), self._is_alive(chief)
            start, is_answered = note.get("start"), not _ANSWERS.isdisjoint(note)
            if is_answered and start == self._start:
                _raise_error(note)
                return
            if is_there and start and start != self._start and not is_answered:
                self._start = start
                text = difference(self._description, note["description"], self._hosts)
                self._write({"start": start, "refused": text})
            if is_there:
                self._since = time.monotonic()
            self._wait([chief])

    def _wait(self, absent: Sequence[Task]) -> None:
        """Wait a moment; raise RunError once --cluster_timeout has passed.

        After 5 s, log the processes that are awaited once.
        """
        now, names = time.monotonic(), self._hosts.names(absent)
        if now - self._first >= _REPORT_SECONDS and not self._is_logged:
            logging.info("waiting for %s", names)
            self._is_logged = True
        if now - self._since >= self._seconds:
            pronoun = "it" if len(absent) == 1 else "them"
            raise RunError(
                f"{names} did not arrive within --cluster_timeout={self._seconds:g} s; start "
                f"{pronoun} with the same flags and one --workdir that all processes share, or "
                "give a longer --cluster_timeout"
            )
        time.sleep(_PAUSE_SECONDS)

    def _path(self, task: Task) -> Path:
        """Return the path of the note of a process, such as `cluster/worker-1.json`."""
        return Path(self._workdir, "cluster", f"{task[0]}-{task[1]}.json")

    def _lock_note(self) -> TextIO:
        """Make the note of this process, empty, and lock it.

        Raises:
            UsageError: The workdir cannot be written, or another process has the lock.
        """
        path, deadline = self._path(self._hosts.task), time.monotonic() + _LOCK_SECONDS
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = open(path, "a", encoding="utf-8")  # noqa: SIM115  # the object keeps it
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    file.truncate(0)
                    return file
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        file.close()
                        break
                    time.sleep(_PAUSE_SECONDS)
        except OSError as error:
            raise UsageError(
                f"--workdir={self._workdir}: {error.strerror}; all processes write there, so give "
                "one folder that they share, such as NFS, on a file system with locks"
            ) from error
        kind, index = self._hosts.task
        raise UsageError(
            f"--workdir={self._workdir}: another cluster is running there, with a {kind} {index} "
            "of its own; wait for it or choose another folder"
        )

    def _write(self, note: Mapping[str, Any]) -> None:
        """Write the note of this process, in the file that it has locked."""
        self._file.truncate(0)
        self._file.write(json.dumps(note, indent=1) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _read(self, task: Task) -> dict[str, Any]:
        """Return the note of a process; empty if there is none, or it is just being written."""
        path = self._path(task)
        with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
            os.listdir(path.parent)  # makes NFS refresh its cache of the folder
            return dict(json.loads(path.read_text(encoding="utf-8")))
        return {}

    def _is_alive(self, task: Task) -> bool:
        """Return whether a process has the lock of its note."""
        try:
            with open(self._path(task), encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:  # a lock, or a file system that does not answer
            return not isinstance(error, FileNotFoundError)
        return False

    def _has_reported(self, task: Task) -> bool:
        """Return whether a process is there, and has reported to this start of the chief."""
        return self._read(task).get("start") == self._start and self._is_alive(task)


def difference(own: Mapping[str, str], chief: Mapping[str, str], hosts: Hosts) -> str:
    """Return the first difference of two results of `describe`, and its remedy, or ""."""
    for label, value in own.items():
        if value != chief.get(label):
            remedy = next(text for start, text in _REMEDIES.items() if label.startswith(start))
            name = hosts.name(*hosts.task)
            return f"{name} has {label}{value} and the chief {chief.get(label)}; {remedy}"
    return ""


def check_own_address(hosts: Hosts, seconds: float) -> None:
    """Check that this process can listen at the address that TF_CONFIG gives it.

    Args:
        seconds: The longest time to wait until the name of the host is known. The name of a pod
            that has just started may not be known yet.

    Raises:
        UsageError: The port is taken, or the address is unknown.
    """
    name, _, number = hosts.address.rpartition(":")
    host, port = name.strip("[]"), int(number)
    prefix = f"TF_CONFIG names {hosts.address} for this process ({hosts.kind} {hosts.index})"
    if reason := ports.taken(port):
        raise UsageError(
            f"{prefix}, and port {port} cannot be used: {reason}; end the process that listens "
            "there, or give every process another address"
        )
    deadline, is_logged = time.monotonic() + seconds, False
    while not (addresses := _resolve(host, port)):
        if time.monotonic() >= deadline:
            raise UsageError(f"{prefix}, and no machine of that name is known; correct the address")
        if not is_logged:
            logging.info("%s: waiting until this name is known", prefix)
            is_logged = True
        time.sleep(_PAUSE_SECONDS)
    if all(ports.taken(port, address) for address in addresses):  # perhaps through a NAT
        logging.warning(
            '%s, and this machine has no such address; if that is another machine, correct "task", '
            "or start this process there",
            prefix,
        )


def is_lost_process_error(error: Exception) -> bool:
    """Return whether TensorFlow raises an error of this type when a process is gone or new.

    A process that was started again does not know its earlier context. TensorFlow has no type for
    this: it raises InvalidArgumentError with the text below (`EagerServiceImpl::GetServerContext`),
    and its own coordinator looks for texts, too (`_is_ps_failure`).
    """
    is_new_process = isinstance(error, tf.errors.InvalidArgumentError) and (
        "Unable to find a context_id" in error.message
    )
    return is_new_process or isinstance(error, _LOST_PROCESS_ERRORS)


def start_again(lost: str) -> None:
    """Replace this process by a new run of its program with the same arguments; never return.

    Args:
        lost: The name of the lost process, for a warning.
    """
    logging.warning("%s is gone: starting again to continue from the last checkpoint", lost)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    spec = sys.modules["__main__"].__spec__  # None for a program that was started as a file
    program = [sys.argv[0]] if spec is None else ["-m", spec.name]
    os.execv(sys.executable, [sys.executable, *program, *sys.argv[1:]])


def _resolve(host: str, port: int) -> set[Any]:
    """Return the IP addresses of a host as texts; an empty set if its name is not known."""
    try:
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return set()
    return {str(address[0]) for *_, address in entries}


def _raise_error(answer: Mapping[str, Any]) -> None:
    """Raise a RunError for the answer `failed`, a UsageError for `refused`, and else nothing."""
    if "failed" in answer:
        raise RunError(answer["failed"])
    if "refused" in answer:
        raise UsageError(answer["refused"])


def describe(flags: Mapping[str, Any], hosts: Hosts) -> dict[str, str]:
    """Return all values that must be equal in all processes, by label for messages.

    They are versions, a digest of Lexrow's code, the cluster, and all flags but `_MAY_DIFFER`.
    """
    same = {name: value for name, value in flags.items() if name not in _MAY_DIFFER.split()}
    return {
        "Python ": ".".join(platform.python_version_tuple()[:2]),
        **{f"{name} ": _version(package) for name, package in _PACKAGES.items()},
        "revision of Lexrow ": _code_digest(),
        "TF_CONFIG with the cluster ": json.dumps(hosts.tasks),
        **{f"--{name}=": as_text(value) for name, value in same.items()},
    }


def _version(package: str) -> str:
    """Return the version of an installed package, or "unknown"."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _code_digest() -> str:
    """Return twelve hex digits of a digest of the names and contents of Lexrow's modules."""
    folder = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]
