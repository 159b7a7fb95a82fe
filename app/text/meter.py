"""Show the progress of a long pass: a bar on a terminal, else a log line from time to time."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

import tqdm
from absl import logging

_INTERVAL_SECONDS = 30.0


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
