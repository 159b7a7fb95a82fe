"""Output to the terminal: progress, hidden notes of libraries, columns, sizes with units."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence

import tqdm
from absl import logging

_INTERVAL_SECONDS = 30.0  # between two log lines of `show_progress`


@contextlib.contextmanager
def hide_stderr() -> Iterator[None]:
    """Hide the output of a block to stderr, also from C++, and write it there if the block raises.

    The whole process is affected, with all its threads. Some libraries write notes to stderr at
    every log level.
    """
    sys.stderr.flush()
    with tempfile.TemporaryFile() as notes:
        terminal = os.dup(2)
        os.dup2(notes.fileno(), 2)
        try:
            yield
        except BaseException:
            notes.seek(0)
            os.write(terminal, notes.read())
            raise
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)


def aligned(rows: Sequence[Sequence[str]], alignments: str) -> list[str]:
    """Return the rows of a table as lines of text, each column as wide as its longest cell.

    Two blanks separate the columns. Blanks at the end of a line are removed.

    Args:
        alignments: A character for each column: `<` for left, `>` for right.
    """
    widths = (max(map(len, column)) for column in zip(*rows, strict=True))
    specs = [f"{side}{width}" for side, width in zip(alignments, widths, strict=True)]
    return ["  ".join(map(format, row, specs)).rstrip() for row in rows]


def size_text(count: int) -> str:
    """Return a number of bytes as text in kB (1e3), MB (1e6) or GB (1e9)."""
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:,.2f} {unit}"
    return f"{count / 1e3:,.2f} kB"


@contextlib.contextmanager
def show_progress(what: str, total: int | None, unit: str) -> Iterator[Callable[[int], None]]:
    """Yield a function `show(position)` to call during a pass, with a position from 0 to `total`.

    If stderr is a terminal, each call moves a bar, which disappears at the end of the block.
    Elsewhere a call logs a line if 30 seconds have passed since the last, so a short pass logs
    nothing.

    Args:
        what: Name of the pass.
        total: Largest position; None if it is not known.
        unit: Unit of the position, such as "B".
    """
    if sys.stderr.isatty():
        with tqdm.tqdm(desc=what, total=total, unit=unit, unit_scale=True, leave=False) as bar:
            yield lambda position: bar.update(position - bar.n)
        return
    last = time.monotonic()

    def show(position: int) -> None:
        """Log the position if 30 seconds have passed since the start or the last log line."""
        nonlocal last
        now = time.monotonic()
        if now - last >= _INTERVAL_SECONDS:
            last = now
            of_total = "" if total is None else f" of {total:,}"
            logging.info("%s: %s%s %s", what, f"{position:,}", of_total, unit.strip())

    yield show
