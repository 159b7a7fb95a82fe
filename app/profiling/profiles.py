"""Find recorded profiles, and read their events by a converter of xprof."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import RunError, UsageError
from ..system.console import hide_stderr

# The files that TensorFlow's profiler writes below a folder of TensorBoard.
_PATTERN = "plugins/profile/*/*.xplane.pb"
_RECORD = (
    "record one with: lexrow train --workdir=DIR --profile_steps=START,STOP, or in "
    "Keras with TensorBoard(DIR, profile_batch=(START, STOP))"
)


class Event(NamedTuple):
    """A recorded event of a thread.

    Attributes:
        process: The process, such as `/host:CPU` or `/device:GPU:0`.
        thread: The name and the number of the thread, separated by a space.
        name: The name of the event; for an operation, its type.
        start: Microseconds.
        length: Microseconds.
        args: The recorded arguments.
    """

    process: str
    thread: str
    name: str
    start: float
    length: float
    args: dict[str, str]


def find_newest(folder: Path, flag: str = "workdir") -> Path:
    """Return the folder of the newest profile anywhere below a folder. Its name is its time.

    Args:
        folder: The folder to search, such as a workdir.
        flag: The flag that names the folder, for messages.

    Raises:
        UsageError: There is no such folder, or no profile below it.
    """
    if not folder.is_dir():
        raise UsageError(f"--{flag}={folder}: no such folder; give that of a run")
    paths = [path for path in folder.rglob("*.xplane.pb") if path.match(_PATTERN)]
    if not paths:
        raise UsageError(f"--{flag}={folder}: no profile there; {_RECORD}")
    # The folder of a profile is named by its time.
    return max(paths, key=lambda path: (path.parent.name, path)).parent


def file_of(folder: Path) -> Path:
    """Return the .xplane.pb file of the first host of the profile in a folder."""
    return min(folder.glob("*.xplane.pb"))


def read(file: Path) -> list[Event]:
    """Read the events of a profile, in no order.

    Output to stderr is hidden meanwhile, for the whole process.

    Args:
        file: The .xplane.pb file of the profile.

    Raises:
        RunError: The file is truncated or no profile.
    """
    with hide_stderr():
        from xprof.convert import raw_to_tool_data  # slow to import

        # A result that TensorBoard has saved may belong to a file that was replaced since.
        options = {"use_saved_result": False}
        data, _ = raw_to_tool_data.xspace_to_tool_data([str(file)], "trace_viewer", options)
    if not data:
        raise RunError(f"{file} is truncated or no profile; delete it and {_RECORD}")
    return parse(json.loads(data)["traceEvents"])


def on_stream(event: Event) -> bool:
    """Return whether the event is an operation or a copy that a device other than the CPU ran.

    Other events with the name of a device are derived by xprof.
    """
    return event.process.startswith("/device:") and event.thread.startswith("Stream #")


def parse(raw: Sequence[dict[str, Any]]) -> list[Event]:
    """Return the complete events (phase X) of Chrome's trace format; leave out all others."""
    processes = {item["pid"]: item["args"]["name"] for item in raw if _names(item, "process")}
    threads = {
        (item["pid"], item["tid"]): item["args"]["name"] for item in raw if _names(item, "thread")
    }
    return [
        Event(
            processes.get(item["pid"], ""),
            f"{threads.get((item['pid'], item['tid']), '')} {item['tid']}",
            item["name"],
            item["ts"],
            item["dur"],
            item.get("args", {}),
        )
        for item in raw
        if item.get("ph") == "X"
    ]


def _names(item: dict[str, Any], kind: str) -> bool:
    """Return whether an item is metadata with the name of a process or a thread."""
    return item.get("ph") == "M" and item["name"] == f"{kind}_name"
