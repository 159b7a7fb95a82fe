"""Output to the terminal: hidden notes of libraries, aligned columns, and sizes with units."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence


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
