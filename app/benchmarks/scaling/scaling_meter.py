"""Measure the processor time of child processes while a training run goes on (Linux)."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_POLL_SECONDS = 0.1
# Fields of /proc/PID/stat after the name: the parent, user time, system time, in ticks (proc(5)).
_PARENT, _USER, _SYSTEM = 1, 11, 12


class Mark(NamedTuple):
    """A moment of a run.

    Attributes:
        lines: The lines of metrics.jsonl.
        seconds: The processor seconds of all child processes.
    """

    lines: int
    seconds: float


@contextlib.contextmanager
def measuring(metrics: Path) -> Iterator[list[Mark]]:
    """Add a mark to a list whenever the file has new lines, until the end of the block.

    The list stays empty on other systems than Linux.

    Args:
        metrics: The file metrics.jsonl.
    """
    marks: list[Mark] = []
    ended = threading.Event()

    def poll() -> None:
        seen = 0
        while not ended.wait(_POLL_SECONDS):
            with contextlib.suppress(OSError):
                lines = metrics.read_bytes().count(b"\n")
                if lines > seen:
                    marks.append(Mark(lines, descendant_seconds(os.getpid())))
                    seen = lines

    thread = threading.Thread(target=poll, name="meter", daemon=True)
    thread.start()
    try:
        yield marks
    finally:
        ended.set()
        thread.join()


def descendant_seconds(root: int, folder: Path = Path("/proc")) -> float:
    """Return the processor seconds of the descendants of a process that still run.

    Args:
        root: The process id.
        folder: The folder of the proc filesystem.

    Raises:
        OSError: There is no such folder.
    """
    parents, ticks = {}, {}
    for entry in folder.iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):  # the process has ended
                # The name, in brackets, may hold spaces and brackets.
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                number = int(entry.name)
                parents[number] = int(fields[_PARENT])
                ticks[number] = int(fields[_USER]) + int(fields[_SYSTEM])
    return sum(ticks[number] for number in _below(root, parents)) / os.sysconf("SC_CLK_TCK")


def _below(root: int, parents: dict[int, int]) -> list[int]:
    children: dict[int, list[int]] = {}
    for number, parent in parents.items():
        children.setdefault(parent, []).append(number)
    below = list(children.get(root, ()))
    for number in below:  # the list grows in the loop
        below += children.get(number, ())
    return below
