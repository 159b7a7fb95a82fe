"""How far a long pass has come: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

import tqdm
from absl import logging

_INTERVAL_SECONDS = 30.0


@contextlib.contextmanager
def show_progress(what: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Yields `show(position)`, where `position` counts units (such as "B") from 0 to `total`.

    On a terminal a bar moves; elsewhere one line is logged for each interval of 30 seconds, so a
    short pass logs nothing.
    """
    if sys.stderr.isatty():
        with tqdm.tqdm(desc=what, total=total, unit=unit, unit_scale=True, leave=False) as bar:
            yield lambda position: bar.update(position - bar.n)
        return
    last = time.monotonic()

    def show(position: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _INTERVAL_SECONDS:
            last = now
            logging.info("%s: %s of %s %s", what, f"{position:,}", f"{total:,}", unit)

    yield show
