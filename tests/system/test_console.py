from __future__ import annotations

import io
import logging
import sys
import types

import pytest

from app.system import console


def test_columns_are_as_wide_as_their_longest_cell():
    rows = [("name", "n", ""), ("a", "1,000", "note"), ("bc", "7", "")]
    assert console.aligned(rows, "<><") == ["name      n", "a     1,000  note", "bc        7"]


def test_lines_are_logged_at_intervals_where_there_is_no_terminal(monkeypatch, caplog, capfd):
    monkeypatch.setattr(console, "_INTERVAL_SECONDS", 10.0)
    clock = iter([0.0, 5.0, 12.0, 20.0, 23.0])
    monkeypatch.setattr(console.time, "monotonic", lambda: next(clock))
    with (
        caplog.at_level(logging.INFO, logger="absl"),
        console.show_progress("reading", 4000, "B") as show,
    ):
        for position in (1000, 2000, 3000, 4000):
            show(position)
    assert caplog.messages == ["reading: 2,000 of 4,000 B", "reading: 4,000 of 4,000 B"]


@pytest.mark.parametrize("delay", [0.0, 60.0])
def test_a_bar_moves_on_a_terminal_if_a_pass_lasts(monkeypatch, capsys, delay):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(console, "_DELAY_SECONDS", delay)
    with console.show_progress("reading", 4000, "B") as show:
        show(1000)
        show(4000)
    assert ("reading" in capsys.readouterr().err) == (not delay)


def shown(capsys, verbose):
    """What a pass of two lines writes to stderr."""
    with console.progress(verbose), console.make_bar(total=2, desc="training") as bar:
        bar.update()
        if bar.disable:
            console.log_progress("step 1: loss 2.5")
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("place", "verbose", "expected"),
    [
        ("pipe", None, ""),
        ("pipe", True, "step 1: loss 2.5\n"),
        ("pipe", False, ""),
        ("terminal", None, "training:  50%"),
        ("terminal", True, "training:  50%"),
        ("terminal", False, ""),
        ("notebook", None, "training:  50%"),
        ("notebook", False, ""),
    ],
)
def test_progress_is_where_it_can_be_seen(monkeypatch, capsys, place, verbose, expected):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: place == "terminal", raising=False)
    if place == "notebook":
        shell = types.SimpleNamespace(config={"IPKernelApp": {}})
        python = types.SimpleNamespace(get_ipython=lambda: shell)
        monkeypatch.setitem(sys.modules, "IPython", python)
    text = shown(capsys, verbose)
    assert expected in text and bool(text) == bool(expected)


class Plain:
    """A stream of a program, with what print needs."""

    write = flush = lambda *_: None


@pytest.mark.parametrize("verbose", [None, True, False])
@pytest.mark.parametrize("stream", ["none", "closed", "plain"])
def test_a_program_may_have_no_console(monkeypatch, stream, verbose):
    closed = io.StringIO()
    closed.close()
    streams = {"none": None, "closed": closed, "plain": Plain()}
    monkeypatch.setattr(sys, "stderr", streams[stream])
    with console.progress(verbose), console.hide_stderr(), console.make_bar(total=2) as bar:
        bar.update()
        console.log_progress("step 1: loss 2.5")
    assert bar.disable


def test_the_choice_ends_with_its_block(capsys):
    assert shown(capsys, True) and not shown(capsys, None)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_command_that_waits_for_lines_of_a_terminal_says_so(monkeypatch, is_terminal):
    lines, logged = io.StringIO(), []
    lines.isatty = lambda: is_terminal
    monkeypatch.setattr(sys, "stdin", lines)
    monkeypatch.setattr(console.logging, "info", lambda text, *values: logged.append(text % values))
    console.note_terminal("texts")
    assert logged == ["reading texts from the terminal, one a line; end with Ctrl-D"] * is_terminal
