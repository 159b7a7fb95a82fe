"""Recorded profiles, read through xprof's converters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .. import __name__ as PACKAGE
from ..errors import RunError, UsageError
from ..system.console import hide_stderr

# Where the profiler writes below a folder of TensorBoard's, and what.
_PATTERN = "plugins/profile/*/*.xplane.pb"
_RECORD = f"record one with: python -m {PACKAGE}.train --profile_steps=START,STOP"


class Event(NamedTuple):
    """Something that a thread did: `start` and `length` in microseconds, `args` as recorded.

    process: such as /host:CPU or /device:GPU:0. name: of an operation its type.
    """

    process: str
    thread: str
    name: str
    start: float
    length: float
    args: dict[str, str]


class Profile(NamedTuple):
    """A recording of some calls.

    path: its folder. steps: of each whole call the milliseconds of its parts, by the columns of
    xprof's input pipeline analyzer; none if no step was marked for it (`_r=1`). hardware: as xprof
    calls it, such as CPU_ONLY. events: of the first host, in no order.
    """

    path: Path
    steps: list[dict[str, float]]
    hardware: str
    events: list[Event]


def newest(folder: Path, flag: str = "workdir") -> Path:
    """The folder of the newest profile anywhere below a folder. UsageError if there is none.

    flag: that named it.
    """
    if not folder.is_dir():
        raise UsageError(f"--{flag}={folder}: no such folder; give that of a run")
    found = [path for path in folder.rglob("*.xplane.pb") if path.match(_PATTERN)]
    if not found:
        raise UsageError(f"--{flag}={folder}: no profile there; {_RECORD}")
    return max(found, key=lambda path: (path.parent.name, path)).parent  # named by the time


def read(folder: Path) -> Profile:
    """The profile in a folder. RunError if it is damaged."""
    files = [str(path) for path in sorted(folder.glob("*.xplane.pb"))]
    analysis = _tool(files, "input_pipeline_analyzer")
    trace = _tool(files[:1], "trace_viewer")
    (table,) = (table for table in analysis if any(c["id"] == "stepnum" for c in table["cols"]))
    columns = [column["id"] for column in table["cols"]]
    rows = [[cell["v"] for cell in row["c"]] for row in table["rows"]]
    steps = [
        {name: float(value) for name, value in zip(columns, row, strict=True) if _is_time(name)}
        for row in rows
    ]
    return Profile(folder, steps, table["p"]["hardware_type"], _events(trace["traceEvents"]))


def on_stream(event: Event) -> bool:
    """Whether a device did it; other lines of a device are what xprof derives from those."""
    return event.process.startswith("/device:") and event.thread.startswith("Stream #")


def _tool(files: Sequence[str], name: str) -> Any:
    with hide_stderr():
        from xprof.convert import raw_to_tool_data  # slow to import

        # Not the result that TensorBoard may have kept: a file of that name may have been replaced.
        data, _ = raw_to_tool_data.xspace_to_tool_data(files, name, {"use_saved_result": False})
    if not data:
        raise RunError(f"{files[0]} is truncated or no profile; delete it and {_RECORD}")
    return json.loads(data)


def _is_time(column: str) -> bool:
    return column.endswith("TimeMs")


def _events(raw: Sequence[dict[str, Any]]) -> list[Event]:
    """The complete events (phase X) of Chrome's trace format, with the names of its metadata."""
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


def _names(item: dict[str, Any], what: str) -> bool:
    return item.get("ph") == "M" and item["name"] == f"{what}_name"
