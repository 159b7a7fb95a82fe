"""Which messages a command prints."""

from __future__ import annotations

import logging as std_logging

import pytest
from absl import logging

import app.train
from app.cli.messages import set_up_logging


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
