"""The terminal of a command."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator


@contextlib.contextmanager
def hushed() -> Iterator[None]:
    """Keeps what is written to stderr meanwhile, by C++ too, and shows it only if the block fails.

    For libraries that write notes of their own there, before or beside any log level.
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
