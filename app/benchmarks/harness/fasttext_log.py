"""The seconds of training in the log of a process that trains by fastText."""

from __future__ import annotations

import re
from pathlib import Path

# In fastText's progress line: words, labels and ends of lines that a thread reads.
_SPEED = re.compile(r"words/sec/thread:\s*(\d+)")


def train_seconds(log: Path, tokens: int, threads: int) -> float:
    """Return the seconds of the training loop, from the speed in the last progress line.

    Args:
        log: The log of a training with `verbose=2`.
        tokens: The words, labels and ends of lines of all epochs.
        threads: The number of threads.

    Raises:
        IndexError: The log has no progress line.
    """
    speeds = _SPEED.findall(log.read_text(encoding="utf-8", errors="replace"))
    return tokens / (int(speeds[-1]) * threads)
