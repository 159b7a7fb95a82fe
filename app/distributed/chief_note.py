"""Compare the flags and versions of a process with the note of the chief in the workdir.

The note is a file, not a message, for two reasons. It shows that the processes share the workdir.
And a process that is started again can read it while the chief trains.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import platform
import secrets
import time
from pathlib import Path
from typing import Any

from ..checkpoints.workdir import read_json, write_json
from ..errors import RunError, UsageError
from ..settings import Config
from ..settings.flag_values import by_name
from ..settings.setting import as_text
from .cluster_spec import Hosts

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
_REMEDIES = {
    "versions": "install the same lock file everywhere",
    "code": "install the same revision everywhere",
    "cluster": "give every process the same one",
    "flags": "start every process with the same flags",
}
# The longest time until other machines see a new note. NFS caches the content of a folder for 30 s
# by default (nfs(5), acdirmin).
_UNSEEN_SECONDS = 40.0
_PAUSE_SECONDS = 0.5


def write_note(config: Config, hosts: Hosts) -> str:
    """Write the chief's flags and versions to a note in the workdir, which replaces an older one.

    Args:
        config: The settings of the run.
        hosts: The processes of the run.

    Returns:
        A text that identifies this start of the chief, to give to `difference`.

    Raises:
        UsageError: The workdir cannot be written.
    """
    start = secrets.token_hex(8)
    try:
        write_json(_path(config), {"start": start, **_note(config, hosts)})
    except (RunError, UsageError) as error:
        raise UsageError(
            f"--workdir={config.run.workdir}: {error}; all processes write there, so give one "
            "folder that they share, such as NFS"
        ) from error
    return start


def difference(config: Config, hosts: Hosts, start: str | None) -> str:
    """Return how this process differs from the note of the running chief, or "" if it does not.

    Wait for the note for up to 40 seconds, or half of --cluster_timeout if that is shorter. A note
    that does not appear counts as a difference.

    Args:
        config: The settings of this process.
        hosts: The processes of the run.
        start: The result of `write_note` for the awaited note; None for any note.

    Returns:
        A message that names this process, its first difference and the remedy.

    Raises:
        DamagedError: The note is damaged.
        RunError: The note cannot be read.
    """
    # The chief waits no longer than --cluster_timeout for the answer.
    deadline = time.monotonic() + min(_UNSEEN_SECONDS, config.run.cluster_timeout / 2)
    while (chief := _read_note(config)) is None or start not in (None, chief["start"]):
        if time.monotonic() >= deadline:
            reason = (
                f"does not find the note of the chief in --workdir={config.run.workdir}; all "
                "processes need one folder that they share, such as NFS"
            )
            break
        time.sleep(_PAUSE_SECONDS)
    else:
        reason = _first_difference(_note(config, hosts), chief)
    return f"{hosts.name(*hosts.task)} {reason}" if reason else ""


def _path(config: Config) -> Path:
    """Return the path of the note in the workdir: `cluster/chief.json`."""
    return Path(config.run.workdir) / "cluster" / "chief.json"


def _note(config: Config, hosts: Hosts) -> dict[str, dict[str, str]]:
    """Return all values that must be equal in all processes: by kind, then by label for messages.

    They are versions, a digest of Lexrow's code, the cluster, and all flags but `_MAY_DIFFER`.
    """
    flags = {name: value for name, value in by_name(config).items() if name not in _MAY_DIFFER}
    if config.run.strategy == "parameter_server":  # servers write to the path that the chief gives
        flags["workdir"] = os.path.abspath(config.run.workdir)
    return {
        "versions": {
            "Python ": ".".join(platform.python_version_tuple()[:2]),
            **{f"{name} ": _version(package) for name, package in _PACKAGES.items()},
        },
        "code": {"revision of Lexrow ": _code_digest()},
        "cluster": {"TF_CONFIG with the cluster ": json.dumps(hosts.tasks)},
        "flags": {f"--{name}=": as_text(value) for name, value in flags.items()},
    }


def _read_note(config: Config) -> dict[str, Any] | None:
    """Return the note of the chief, or None if there is none yet.

    Raise DamagedError if it is damaged, and RunError if it cannot be read.
    """
    path = _path(config)
    with contextlib.suppress(OSError):
        os.listdir(path.parent)  # makes NFS refresh its cache of the folder
    return read_json(path, {"start": str, **dict.fromkeys(_REMEDIES, dict)})


def _first_difference(mine: dict[str, Any], chief: dict[str, Any]) -> str:
    """Return the first difference and its remedy, to follow a process name, or "" if none."""
    for kind, remedy in _REMEDIES.items():
        for label, value in mine[kind].items():
            expected = chief[kind].get(label)
            if value != expected:
                return f"has {label}{value} and the chief {expected}; {remedy}"
    return ""


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
