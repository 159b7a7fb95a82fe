"""The ways a command can end badly; the mains turn each into one line and an exit code."""

from __future__ import annotations


class UsageError(ValueError):
    """The person asked for something that cannot be: exit code 2, before any work.

    The message is one line that names the flag or file, its value, and the remedy.
    """


class RunError(RuntimeError):
    """Something failed while running: exit code 1, with nothing half-written.

    The message is one line that names what failed and the remedy.
    """


class DamagedError(RunError):
    """A file is missing, or does not hold what was written to it.

    Raise it only where a checksum or the form of the file itself shows this, as checkpoints are put
    aside for it. A file that the system refuses to read is not damaged.
    """
