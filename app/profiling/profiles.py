"""Find and read recorded profiles, by xprof's converters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .. import __name__ as PACKAGE
from ..errors import RunError, UsageError
from ..system.console import hide_stderr

# The files that TensorFlow's profiler writes below a folder of TensorBoard.
_PATTERN = "plugins/profile/*/*.xplane.pb"
_RECORD = f"record one with: python -m {PACKAGE}.train --workdir=DIR --profile_steps=START,STOP"


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


class Profile(NamedTuple):
    """A recorded profile of some calls.

    Attributes:
        steps: For each complete call the milliseconds of its parts, by the columns of xprof's input
            pipeline analyzer; empty if no step was marked for xprof (`_r=1`).
        hardware: xprof's name of the hardware, such as `CPU_ONLY`.
        events: The events of the first host, in no order.
    """

    steps: list[dict[str, float]]
    hardware: str
    events: list[Event]


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


def read(folder: Path) -> Profile:
    """Read the profile in a folder.

    Output to stderr is hidden meanwhile, for the whole process.

    Args:
        folder: The folder of the profile, with at least one .xplane.pb file.

    Returns:
        The profile.

    Raises:
        RunError: A file of the profile is truncated or no profile.
    """
    files = [str(path) for path in sorted(folder.glob("*.xplane.pb"))]
    analysis = _run_converter(files, "input_pipeline_analyzer")
    trace = _run_converter(files[:1], "trace_viewer")
    (table,) = (table for table in analysis if any(c["id"] == "stepnum" for c in table["cols"]))
    columns = [column["id"] for column in table["cols"]]
    rows = [[cell["v"] for cell in row["c"]] for row in table["rows"]]
    steps = [
        {name: float(value) for name, value in zip(columns, row, strict=True) if _is_time(name)}
        for row in rows
    ]
    return Profile(steps, table["p"]["hardware_type"], _events(trace["traceEvents"]))


def on_stream(event: Event) -> bool:
    """Return whether the event is an operation or a copy that a device other than the CPU ran.

    Other events with the name of a device are derived by xprof.
    """
    return event.process.startswith("/device:") and event.thread.startswith("Stream #")


def _run_converter(files: Sequence[str], name: str) -> Any:
    """Run a converter of xprof on files of a profile, and return its result, parsed from JSON.

    Raises:
        RunError: The converter gives nothing, as for a truncated file.
    """
    with hide_stderr():
        from xprof.convert import raw_to_tool_data  # slow to import

        # A result that TensorBoard has saved may belong to a file that was replaced since.
        data, _ = raw_to_tool_data.xspace_to_tool_data(files, name, {"use_saved_result": False})
    if not data:
        raise RunError(f"{files[0]} is truncated or no profile; delete it and {_RECORD}")
    return json.loads(data)


def _is_time(column: str) -> bool:
    """Return whether a column of xprof's analyzer is a time in milliseconds."""
    return column.endswith("TimeMs")


def _events(raw: Sequence[dict[str, Any]]) -> list[Event]:
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
