"""Control of the output of a command to the terminal."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator


@contextlib.contextmanager
def hide_stderr() -> Iterator[None]:
    """Hide the output to stderr of a block, also from C++, and show it only if the block fails.

    Some libraries write notes there whatever the log level is.
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
