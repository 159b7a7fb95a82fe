"""Measure a training run: its metrics, and the processor time of its processes (Linux)."""

from __future__ import annotations

import collections
import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..harness.machine import watching
from ..harness.trainer import later_speed, mean_between

_POLL_SECONDS = 0.1
# Fields of /proc/PID/stat after the name: the parent, user time, system time, in ticks (proc(5)).
_PARENT, _USER, _SYSTEM = 1, 11, 12


class Mark(NamedTuple):
    """A moment of a run.

    Attributes:
        lines: The number of lines of metrics.jsonl so far.
        seconds: The processor seconds so far of all descendants of this process that still run.
    """

    lines: int
    seconds: float


@contextlib.contextmanager
def measuring(metrics: Path) -> Iterator[list[Mark]]:
    """Yield a list to which a thread adds a mark whenever a file has new lines, within the block.

    The thread looks every 0.1 s. Without a file or /proc (on other systems than Linux) the list
    stays empty.

    Args:
        metrics: The file metrics.jsonl.
    """
    marks: list[Mark] = []

    def look() -> None:
        """Add a mark if the file has new lines."""
        with contextlib.suppress(OSError):
            lines = metrics.read_bytes().count(b"\n")
            if lines > (marks[-1].lines if marks else 0):
                marks.append(Mark(lines, descendant_seconds(os.getpid())))

    with watching(look, _POLL_SECONDS):
        yield marks


def descendant_seconds(root: int, folder: Path = Path("/proc")) -> float:
    """Return the processor seconds of all running descendants of a process, without its own.

    Processes that end meanwhile are skipped.

    Args:
        root: The process id.
        folder: The folder of the proc filesystem.

    Raises:
        OSError: There is no such folder.
    """
    ticks: dict[int, int] = {}
    children: dict[int, list[int]] = collections.defaultdict(list)
    for entry in folder.iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):  # the process has ended
                # The name, in brackets, may hold spaces and brackets.
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                number = int(entry.name)
                children[int(fields[_PARENT])].append(number)
                ticks[number] = int(fields[_USER]) + int(fields[_SYSTEM])

    def below(number: int) -> int:
        """Return the ticks of the children of a process, of their children, and so on."""
        return sum(ticks[child] + below(child) for child in children[number])

    return below(root) / os.sysconf("SC_CLK_TCK")


def read_metrics(rows: Sequence[Mapping[str, float]], marks: Sequence[Mark]) -> dict[str, Any]:
    """Return the figures of a run by key, from all rows of its metrics.jsonl.

    Args:
        rows: The rows of metrics.jsonl. Rows of scores, without `train_seconds`, are skipped.
        marks: The processor time when these rows were written.

    Returns:
        `epoch`, `words`, `step_words`, `train_seconds` and `words_per_second` of the whole run;
        `later_words_per_second`, without the time before the first row, None if there is one row;
        `processor_seconds` for a million words, or None; and `input_wait` (a share),
        `exchanged_bytes` (a step) and `calls_again`, each None if a row lacks it.
    """
    logged = [row for row in rows if "train_seconds" in row]  # the others have scores
    last = logged[-1]
    return {
        "epoch": last["epoch"],
        "words": last["words"],
        "step_words": last["words"] / last["step"],
        "train_seconds": last["train_seconds"],
        "words_per_second": last["words"] / last["train_seconds"],
        "later_words_per_second": later_speed(logged, "words"),
        "processor_seconds": _processor_seconds(rows, marks),
        "input_wait": mean_between(logged, "input_wait", "train_seconds"),
        "exchanged_bytes": mean_between(logged, "exchanged_bytes", "step"),
        "calls_again": last.get("calls_again"),  # since the start
    }


def _processor_seconds(rows: Sequence[Mapping[str, float]], marks: Sequence[Mark]) -> float | None:
    """Return the processor seconds for a million words, from the first mark to the highest.

    Only marks at rows with `words` are used. Return None if they do not span any words.
    """
    known = [mark for mark in marks if "words" in rows[mark.lines - 1]]
    if not known:
        return None
    # Later marks lack the processes that have ended.
    first, last = known[0], max(known, key=lambda mark: mark.seconds)
    words = rows[last.lines - 1]["words"] - rows[first.lines - 1]["words"]
    return 1e6 * (last.seconds - first.seconds) / words if words else None
