"""Control of the output of a command to the terminal."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator


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
