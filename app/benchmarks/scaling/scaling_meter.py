"""The processor time of what this process has started, while a training run goes on (Linux)."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_LOOK_SECONDS = 0.1
# Of /proc/PID/stat after the name: the parent, and user and system time, in ticks (proc(5)).
_PARENT, _USER, _SYSTEM = 1, 11, 12


class Mark(NamedTuple):
    """Processor seconds when metrics.jsonl was seen to have so many lines."""

    lines: int
    seconds: float


@contextlib.contextmanager
def measuring(metrics: Path) -> Iterator[list[Mark]]:
    """A list that gets a mark whenever the file has got lines, in the length of the block.

    It stays empty where the system does not tell.
    """
    marks: list[Mark] = []
    ended = threading.Event()

    def look() -> None:
        seen = 0
        while not ended.wait(_LOOK_SECONDS):
            with contextlib.suppress(OSError):
                lines = metrics.read_bytes().count(b"\n")
                if lines > seen:
                    marks.append(Mark(lines, started_seconds(os.getpid())))
                    seen = lines

    thread = threading.Thread(target=look, name="meter", daemon=True)
    thread.start()
    try:
        yield marks
    finally:
        ended.set()
        thread.join()


def started_seconds(root: int, folder: Path = Path("/proc")) -> float:
    """Processor seconds of all processes that came from `root`, directly or not, and are there.

    OSError where there is no such folder.
    """
    parents, ticks = {}, {}
    for place in folder.iterdir():
        if place.name.isdecimal():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                # The name, in brackets, may hold spaces and brackets.
                fields = (place / "stat").read_text(errors="replace").rpartition(")")[2].split()
                number = int(place.name)
                parents[number] = int(fields[_PARENT])
                ticks[number] = int(fields[_USER]) + int(fields[_SYSTEM])
    return sum(ticks[number] for number in _below(root, parents)) / os.sysconf("SC_CLK_TCK")


def _below(root: int, parents: dict[int, int]) -> list[int]:
    children: dict[int, list[int]] = {}
    for number, parent in parents.items():
        children.setdefault(parent, []).append(number)
    found = list(children.get(root, ()))
    for number in found:  # which grows on the way
        found += children.get(number, ())
    return found
