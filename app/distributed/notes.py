"""Compare the flags and versions of all processes of a run by notes in the shared workdir.

Each process writes its note before it opens its port. It reads the notes of the others when their
ports are open, so the notes are those of this run.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..checkpoints.workdir import read_json, write_json
from ..config import Config
from ..config.settings import by_name
from ..errors import RunError, UsageError
from .cluster_spec import Hosts, Task

# Flags that may differ: paths and speed of a machine, and flags that only the chief uses.
_MAY_DIFFER = {
    "workdir",
    "data_dir",
    "device",
    "device_memory",
    "intra_op_threads",
    "map_parallelism",
    "prefetch",
    "cache",
    "data_service",
    "log_seconds",
    "checkpoint_minutes",
    "keep_checkpoints",
    "profile_steps",
    "profile_on_slow",
    "audit",
    "cluster_timeout",
}
_PACKAGES = {
    "TensorFlow": "tensorflow",
    "TensorFlow Text": "tensorflow-text",
    "NumPy": "numpy",  # batches depend on its random numbers
}
# The longest time until other machines see a new note. NFS caches the content of a folder for 30 s
# by default (nfs(5), acdirmin).
_UNSEEN_SECONDS = 40.0
_PAUSE_SECONDS = 0.5


@contextlib.contextmanager
def written(config: Config, hosts: Hosts) -> Iterator[None]:
    """Write the note of this process, and delete it if the block fails.

    The note stays after the block, as a process that is started again later reads it too. The next
    run overwrites it.

    Args:
        config: The settings of the run.
        hosts: The processes of the run.

    Raises:
        UsageError: The workdir cannot be written.
    """
    path = _path(config, hosts.task)
    try:
        write_json(path, _note(config, hosts))
    except (RunError, UsageError) as error:
        raise UsageError(
            f"--workdir={config.run.workdir}: {error}; all processes write there, so give one "
            "folder that they share, such as NFS"
        ) from error
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise


def check(config: Config, hosts: Hosts) -> None:
    """Check that all processes have the same flags and versions; their ports have to be open.

    Each process is compared with the chief, so that all processes end with the same message.

    Args:
        config: The settings of the run.
        hosts: The processes of the run.

    Raises:
        UsageError: A note is missing, or a process differs from the chief.
    """
    deadline = time.monotonic() + _UNSEEN_SECONDS
    notes = {}
    for task in (hosts.chief, *hosts.everyone):
        while (note := _read(config, hosts, task)) is None:
            if time.monotonic() >= deadline:
                raise UsageError(
                    f"{hosts.name(*task)} has left no note in --workdir={config.run.workdir}; all "
                    "processes need one folder that they share, such as NFS"
                )
            time.sleep(_PAUSE_SECONDS)
        notes[task] = note
    for task in hosts.everyone:
        difference = _difference(notes[task], notes[hosts.chief])
        if difference:
            raise UsageError(f"{hosts.name(*task)} {difference}")


def _path(config: Config, task: Task) -> Path:
    kind, index = task
    return Path(config.run.workdir) / "cluster" / f"{kind}-{index}.json"


def _note(config: Config, hosts: Hosts) -> dict[str, Any]:
    return {
        "cluster": {job: list(addresses) for job, addresses in hosts.tasks.items()},
        "started": time.time(),
        "host": platform.node(),
        "process": os.getpid(),
        "versions": {
            "Python": ".".join(platform.python_version_tuple()[:2]),
            **{name: _version(package) for name, package in _PACKAGES.items()},
        },
        "code": _code(),
        "flags": _flags(config),
    }


def _flags(config: Config) -> dict[str, Any]:
    flags = {name: value for name, value in by_name(config).items() if name not in _MAY_DIFFER}
    if config.run.strategy == "parameter_server":  # servers write to the path that the chief gives
        flags["workdir"] = os.path.abspath(config.run.workdir)
    return flags


def _read(config: Config, hosts: Hosts, task: Task) -> dict[str, Any] | None:
    """Return the note of a process of this cluster, or None if there is none yet."""
    path = _path(config, task)
    with contextlib.suppress(OSError):
        os.listdir(path.parent)  # makes NFS refresh its cache of the folder
    note = read_json(path)
    mine = {job: list(addresses) for job, addresses in hosts.tasks.items()}
    return note if note is not None and note.get("cluster") == mine else None


def _difference(note: dict[str, Any], chief: dict[str, Any]) -> str:
    """Return the first difference to the chief as the rest of a message; empty if there is none."""
    for name, value in note["versions"].items():
        expected = chief["versions"].get(name)
        if value != expected:
            return (
                f"has {name} {value} and the chief {expected}; install the same lock file "
                "everywhere"
            )
    if note["code"] != chief["code"]:
        return (
            f"runs another revision of Lexrow ({note['code']}) than the chief ({chief['code']}); "
            "install the same revision everywhere"
        )
    for name, value in note["flags"].items():
        expected = chief["flags"].get(name)
        if value != expected:
            return (
                f"has --{name}={_flag_text(value)} and the chief {_flag_text(expected)}; start "
                "every process with the same flags"
            )
    return ""


def _flag_text(value: Any) -> str:
    """Return a value as it is written on a command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _code() -> str:
    """Return the first digits of a digest of Lexrow's modules."""
    folder = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]
