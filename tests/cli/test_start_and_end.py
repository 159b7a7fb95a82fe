"""Which messages a command prints, and what it does where nothing can be printed."""

from __future__ import annotations

import errno
import io
import logging as std_logging
import os
import pathlib
import subprocess
import sys

import pytest
from absl import logging

import app.train
from app.cli.flags import checked_output, set_up_logging
from app.errors import RunError

FULL = "cannot write standard output: No space left on device; free the disk, or send the output"


@pytest.fixture
def handler(monkeypatch):
    """The handler of absl; the log of this process is as before once the test is over."""
    handler = logging.get_absl_handler()
    for logger in (handler, std_logging.getLogger("tensorflow")):
        monkeypatch.setattr(logger, "filters", [])
    monkeypatch.setattr(std_logging.root, "handlers", [*std_logging.root.handlers])
    verbosity, formatter = logging.get_verbosity(), handler.formatter
    yield handler
    logging.set_verbosity(verbosity)
    handler.setFormatter(formatter)


@pytest.mark.parametrize(
    ("level", "path", "is_printed"),
    [
        (std_logging.INFO, app.train.__file__, True),
        (std_logging.INFO, "/lib/tensorflow/python/checkpoint.py", False),
        (std_logging.WARNING, "/lib/tensorflow/python/checkpoint.py", True),
    ],
)
def test_notes_of_other_packages_are_left_out(level, path, is_printed, handler):
    set_up_logging()
    record = std_logging.LogRecord("absl", level, path, 1, "a note", None, None)
    assert bool(handler.filter(record)) == is_printed


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_standard_output_that_is_full(unbuffered):
    code, line = ended_help(">/dev/full", unbuffered)
    assert code == 1 and line == f"train: {FULL} elsewhere\n"


@pytest.mark.slow
def test_a_standard_output_that_is_closed():
    assert ended_help(">&-") == (0, "")


def ended_help(redirection, unbuffered=""):
    """The exit code and standard error of `app.train --help` with a redirection."""
    ended = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m app.train --help {redirection}"],
        cwd=pathlib.Path(__file__).parents[2],
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        capture_output=True,
        text=True,
    )
    return ended.returncode, ended.stderr


class FailingStream(io.StringIO):
    """A stream that raises an error where it should write."""

    def __init__(self, number):
        super().__init__()
        self.error = OSError(number, os.strerror(number))

    def write(self, text):
        raise self.error


def test_only_errors_of_standard_output_are_converted(monkeypatch):
    monkeypatch.setattr(sys, "stdout", FailingStream(errno.ENOSPC))
    with pytest.raises(RunError, match=f"^{FULL} elsewhere$"), checked_output():
        print("text")
    with pytest.raises(FileNotFoundError), checked_output():
        pathlib.Path("/none/file").read_text()
    monkeypatch.setattr(sys, "stdout", FailingStream(errno.EPIPE))
    with pytest.raises(BrokenPipeError), checked_output():
        print("text")
