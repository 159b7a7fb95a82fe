"""Flagfiles: a flag in each line, comments, and other flagfiles. `flags.cfg` of a workdir is one.

A value with white space at its ends or with a line break is between double quotes, as in JSON;
every other value is written as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..errors import UsageError

_DIRECTIVES = ("--flagfile", "-flagfile")


def line(name: str, value: str) -> str:
    """Return the line of a flagfile that gives a flag this value."""
    return f"--{name}={json.dumps(value) if _needs_quotes(value) else value}"


def values(lines: Iterable[str]) -> dict[str, str]:
    """Return the values in the lines of a flagfile, by the name of the flag."""
    pairs = (line[2:].partition("=") for line in lines if line.startswith("--"))
    return {name: _unquoted(value) for name, _, value in pairs}


def read(path: str | Path) -> list[str]:
    """Return the lines of a file.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not UTF-8, or its name cannot be that of a file.
    """
    return Path(path).read_text(encoding="utf-8-sig").split("\n")


def expand(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Put the flags of flagfiles in the place of `--flagfile=FILE`.

    Args:
        arguments: The command line, without the name of the program.

    Returns:
        The command line with the flags of all files, and without them.

    Raises:
        UsageError: A file cannot be read, or includes itself.
    """
    expanded: list[str] = []
    own: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        name, equals, path = argument.partition("=")
        if name in _DIRECTIVES:
            path = path if equals else next(rest, "")
            expanded += _flags_in(path.strip(), ())
            continue
        expanded.append(argument)
        own.append(argument)
        if argument == "--":
            expanded += (following := list(rest))
            own += following
    return expanded, own


def _flags_in(path: str, outer: tuple[Path, ...]) -> list[str]:
    """Return the flags of a flagfile and of those that it includes."""
    if not path:
        raise UsageError("--flagfile= is empty; name a file of flags, such as configs/words.cfg")
    try:
        place = Path(path).expanduser().resolve()
        lines = read(place)
    except OSError as error:
        raise UsageError(f"--flagfile={path}: {error.strerror}; check the path") from error
    except (RuntimeError, ValueError) as error:
        raise UsageError(f"--flagfile={path}: {error}; name a text file of flags") from error
    if place in outer:
        raise UsageError(f"--flagfile={path} includes itself; take that line out of the file")
    found: list[str] = []
    for flag in map(str.strip, lines):
        name, equals, value = flag.partition("=")
        if name in _DIRECTIVES:
            found += _flags_in(value.strip(), (*outer, place))
        elif flag and not flag.startswith(("#", "//")):
            found.append(name + equals + _unquoted(value))
    return found


def _needs_quotes(value: str) -> bool:
    as_it_is = value == value.strip() and len(value.splitlines()) < 2
    return not as_it_is or _unquoted(value) != value


def _unquoted(text: str) -> str:
    """Return the value that a text stands for; quotes that nothing needs belong to the value."""
    if len(text) < 2 or not text[0] == text[-1] == '"':
        return text
    try:
        value = json.loads(text)
    except (RecursionError, ValueError):
        return text
    return value if _needs_quotes(value) else text
