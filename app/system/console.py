"""Output to the terminal: progress, hidden notes of libraries, columns, sizes with units."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from absl import logging

from .scoped import Scoped

if TYPE_CHECKING:
    import tqdm

# See `progress`.
_VERBOSE: Scoped[bool | None] = Scoped(None)
_INTERVAL_SECONDS = 30.0  # between two log lines of `show_progress`
_DELAY_SECONDS = 0.5  # until its bar is shown: a notebook keeps an empty output of each


@contextlib.contextmanager
def hide_stderr() -> Iterator[None]:
    """Hide the output of a block to stderr, also from C++, and write it there if the block fails.

    The whole process is affected, with all its threads. Some libraries write notes to stderr at
    every log level.
    """
    with contextlib.suppress(AttributeError, ValueError):  # see `_is_terminal`
        sys.stderr.flush()
    with tempfile.TemporaryFile() as notes:
        terminal = os.dup(2)
        os.dup2(notes.fileno(), 2)
        try:
            yield
        except Exception:
            notes.seek(0)
            os.write(terminal, notes.read())
            raise
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)


def note_terminal(what: str) -> None:
    """Log that standard input is read from a terminal, if it is one: the command waits for lines.

    Args:
        what: The content of the lines, such as "texts".
    """
    if sys.stdin.isatty():
        logging.info("reading %s from the terminal, one a line; end with Ctrl-D", what)


def aligned(rows: Sequence[Sequence[str]], alignments: str) -> list[str]:
    """Return the rows of a table as lines of text, each column as wide as its longest cell.

    Two blanks separate the columns. Blanks at the end of a line are removed.

    Args:
        alignments: A character for each column: `<` for left, `>` for right.
    """
    widths = (max(map(len, column)) for column in zip(*rows, strict=True))
    specs = [f"{side}{width}" for side, width in zip(alignments, widths, strict=True)]
    return ["  ".join(map(format, row, specs)).rstrip() for row in rows]


def apart(count: int, other: int) -> str:
    """Return a size as text (see `size_text`); in bytes where another would read the same."""
    return f"{count:,} bytes" if size_text(count) == size_text(other) else size_text(count)


def size_text(count: int) -> str:
    """Return a number of bytes as text in kB (1e3), MB (1e6) or GB (1e9)."""
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:,.2f} {unit}"
    return f"{count / 1e3:,.2f} kB"


def progress(verbose: bool | None) -> contextlib.AbstractContextManager:
    """Choose in a block, for this thread, whether progress is shown.

    Args:
        verbose: None: a bar on a terminal or in a notebook, otherwise lines of the log, which
            programs do not print by default. True: lines on stderr where there can be no bar.
            False: nothing.
    """
    return _VERBOSE.set(verbose)


def make_bar(**options: Any) -> tqdm.tqdm:
    """Return a bar of tqdm; its methods do nothing where a bar cannot or must not be shown."""
    in_notebook = is_notebook()
    import tqdm  # layers of Keras need none, and it may not be installed

    is_visible = _VERBOSE.get() is not False and (in_notebook or _is_terminal())
    if not (is_visible and in_notebook):
        return tqdm.tqdm(disable=not is_visible, **options)
    with warnings.catch_warnings():  # without ipywidgets, the bar is one of text
        warnings.simplefilter("ignore")
        from tqdm import auto
    return auto.tqdm(**options)


def _is_terminal() -> bool:
    """Return whether stderr is a terminal; a program may have none, or one without `isatty`."""
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # ValueError: it is closed
        return False


def log_progress(text: str) -> None:
    """Log a line of progress, which `progress(True)` prints, and `progress(False)` drops."""
    verbose = _VERBOSE.get()
    is_open = sys.stderr and not getattr(sys.stderr, "closed", False)
    if verbose and is_open and not logging.level_info():
        print(text, file=sys.stderr, flush=True)
    elif verbose is not False:
        logging.info("%s", text)


def is_notebook() -> bool:
    """Return whether this is the kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return "IPKernelApp" in getattr(shell, "config", ())


@contextlib.contextmanager
def show_progress(what: str, total: int | None, unit: str) -> Iterator[Callable[[int], None]]:
    """Yield a function `show(position)` to call during a pass, with a position from 0 to `total`.

    On a terminal and in a notebook each call moves a bar, which disappears at the end of the block;
    a block that ends at once shows none.
    Elsewhere a call logs a line if 30 seconds have passed since the last, so a short pass logs
    nothing.

    Args:
        what: Name of the pass.
        total: Largest position; None if it is not known.
        unit: Unit of the position, such as "B".
    """
    options = {"unit": unit, "unit_scale": True, "leave": False, "delay": _DELAY_SECONDS}
    with make_bar(desc=what, total=total, **options) as bar:
        if not bar.disable:
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
            log_progress(f"{what}: {position:,}{of_total} {unit.strip()}")

    yield show
