"""What the processes of a run tell each other of themselves before they join: flags and versions.

Each leaves a note in the workdir that they share, before it opens its port; and reads those of the
others once their ports are open, so that what it finds is of this run.
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

# What may differ: where a machine has things, how it works on them, and what the chief alone does.
_OWN = {
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
    "NumPy": "numpy",  # whose draws are in the batches
}
# How long a note that was just written may be unseen by other machines: what they know of a folder
# is up to 30 s old by default (nfs(5), acdirmin).
_UNSEEN_SECONDS = 40.0
_PAUSE_SECONDS = 0.5


@contextlib.contextmanager
def left(config: Config, hosts: Hosts) -> Iterator[None]:
    """Leaves the note of this process in the workdir; takes it back if the block fails.

    Others may read it long after this process has joined: one that is started again does. The next
    run writes its own in its place. UsageError where the workdir cannot be written.
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
    """Raises UsageError unless all processes, whose ports are open, have the same to tell.

    All are compared with the chief, so that each ends with the same line.
    """
    deadline = time.monotonic() + _UNSEEN_SECONDS
    found = {}
    for task in (hosts.chief, *hosts.everyone):
        while (note := _of(config, hosts, task)) is None:
            if time.monotonic() >= deadline:
                raise UsageError(
                    f"{hosts.name(*task)} has left no note in --workdir={config.run.workdir}; all "
                    "processes need one folder that they share, such as NFS"
                )
            time.sleep(_PAUSE_SECONDS)
        found[task] = note
    for task in hosts.everyone:
        different = _difference(found[task], found[hosts.chief])
        if different:
            raise UsageError(different.format(name=hosts.name(*task)))


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
    found = {name: value for name, value in by_name(config).items() if name not in _OWN}
    if config.run.strategy == "parameter_server":  # servers write checkpoints by the chief's path
        found["workdir"] = os.path.abspath(config.run.workdir)
    return found


def _of(config: Config, hosts: Hosts, task: Task) -> dict[str, Any] | None:
    """The note of a process of these hosts, if it is seen here."""
    path = _path(config, task)
    with contextlib.suppress(OSError):
        os.listdir(path.parent)  # has NFS look anew
    note = read_json(path)
    mine = {job: list(addresses) for job, addresses in hosts.tasks.items()}
    return note if note is not None and note.get("cluster") == mine else None


def _difference(note: dict[str, Any], chief: dict[str, Any]) -> str:
    """What a process has otherwise than the chief, as a message about {name}; empty if nothing."""
    for name, value in note["versions"].items():
        other = chief["versions"].get(name)
        if value != other:
            return (
                f"{{name}} has {name} {value} and the chief {other}; install the same lock file "
                "everywhere"
            )
    if note["code"] != chief["code"]:
        return (
            f"{{name}} runs another revision of Lexrow ({note['code']}) than the chief "
            f"({chief['code']}); install the same everywhere"
        )
    for name, value in note["flags"].items():
        other = chief["flags"].get(name)
        if value != other:
            return (
                f"{{name}} has --{name}={_text(value)} and the chief {_text(other)}; start every "
                "process with the same flags"
            )
    return ""


def _text(value: Any) -> str:
    """A value as on a command line, without what has a meaning to `str.format`."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text.replace("{", "{{").replace("}", "}}")


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _code() -> str:
    """The first digits of a digest of Lexrow's own modules."""
    folder = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]
