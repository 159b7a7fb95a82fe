"""Exceptions that end a command; the mains turn each into one line and an exit code."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class UsageError(ValueError):
    """The command line asks for something that is not possible: exit code 2, before any work.

    The message is one line that names the flag or file, its value, and the remedy.
    """

    exit_code = 2


class UnknownNameError(UsageError, KeyError):
    """A word, a user or an item is not known; the message names similar ones."""

    __str__ = ValueError.__str__  # a KeyError shows quotes around its message


class NoEffectError(UsageError):
    """The flag `flag` was given that has no effect, because of the value of another flag."""

    def __init__(self, flag: str, message: str):
        super().__init__(message)
        self.flag = flag


class RunError(RuntimeError):
    """A run failed: exit code 1. No file is left half-written.

    The message is one line that names the failure and the remedy.
    """

    exit_code = 1


class StoppedError(RunError):
    """A run was stopped by Ctrl-C or SIGTERM, and saved: exit code 130, as of a shell."""

    exit_code = 130


class DamagedError(RunError):
    """A file of a checkpoint is missing, or its content is not what was written.

    A checkpoint for which this is raised is moved aside. So raise it only where a checksum or the
    file's own format shows the damage. A file that the system refuses to read is not damaged.
    """


def missing_package(error: ModuleNotFoundError) -> str:
    """Return the message for a package that is not installed; "" if a module of ours is missing."""
    if error.name is None or error.name.partition(".")[0] == __package__:
        return ""
    remedy = 'pip install "lexrow[train]", which has all that training needs'
    return f"{error.name} is not installed; {remedy}"


@contextlib.contextmanager
def needs_package(message: str) -> Iterator[None]:
    """Raise a UsageError with this message if the block imports a package that is not installed."""
    try:
        yield
    except ImportError as error:
        raise UsageError(message) from error
