"""Reading and writing of flagfiles, such as the `flags.cfg` of a workdir.

A line of a flagfile has a flag, a comment, or the name of another flagfile. A value that starts or
ends with white space, or has a line break, is in double quotes, as in JSON. Every other value is
written as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..errors import UsageError
from .flag_values import GONE, is_gone

_DIRECTIVES = ("--flagfile", "-flagfile")
_PRESETS = ("--preset", "-preset")


def line(name: str, value: str) -> str:
    """Return the line of a flagfile that sets a flag, without a line break.

    Args:
        value: The value as text.
    """
    return f"--{name}={json.dumps(value) if _needs_quotes(value) else value}"


def values(lines: Iterable[str]) -> dict[str, str]:
    """Return the values in lines that `line` wrote; skip lines that do not start with `--`.

    Returns:
        Flag name -> value as text.
    """
    pairs = (line[2:].partition("=") for line in lines if line.startswith("--"))
    return {name: _unquoted(value) for name, _, value in pairs}


def preset(name: str) -> Path:
    """Return the flagfile of an example of settings, such as `words`.

    The examples lie beside this package in the repository, and within it where it is installed.

    Raises:
        UsageError: There is no such example.
    """
    package = Path(__file__).parents[1]
    folder = next(
        path for path in (package / "configs", package.parent / "configs") if path.is_dir()
    )
    known = {path.stem: path for path in sorted(folder.glob("*.cfg"))}
    if name not in known:
        raise UsageError(f"--preset={name}: no such example; choose from {', '.join(known)}")
    return known[name]


def read(path: str | Path) -> list[str]:
    """Read the lines of a text file in UTF-8, without their line breaks and a byte-order mark.

    The text after the last line break, also if it is empty, is the last line.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is not UTF-8, or the path is not a valid file name.
    """
    return Path(path).read_text(encoding="utf-8-sig").split("\n")


def expand(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Replace each `--flagfile=FILE` by the flags in the file.

    Flags of earlier versions are left out, if their value would change nothing now.

    `--preset=NAME` is the flagfile of an example, and other flags come after it wherever it is.

    Arguments after a `--` are kept as they are.

    Args:
        arguments: The command line, without the name of the program.

    Returns:
        The command line with the flags of all flagfiles in their place, and the command line
        without the flagfiles and their flags.

    Raises:
        UsageError: A flagfile cannot be read, or includes itself, or there is no such example.
    """
    expanded: list[str] = []
    without_files: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        name, equals, path = argument.partition("=")
        if name in (*_DIRECTIVES, *_PRESETS):
            path = path if equals else next(rest, "")
            is_preset = name in _PRESETS
            flags = _flags_in(str(preset(path)) if is_preset else path.strip(), ())
            expanded = [*flags, *expanded] if is_preset else [*expanded, *flags]
            continue
        expanded.append(argument)
        without_files.append(argument)
        if argument == "--":
            expanded += (following := list(rest))
            without_files += following
    return expanded, without_files


def _flags_in(path: str, outer: tuple[Path, ...]) -> list[str]:
    """Read the flags of a flagfile and of the flagfiles that it includes, without comments.

    Raise UsageError if one cannot be read or includes itself. `outer`: the files that include it.
    """
    if not path:
        raise UsageError("--flagfile= is empty; name a file of flags, such as configs/words.cfg")
    try:
        resolved = Path(path).expanduser().resolve()
        lines = read(resolved)
    except OSError as error:
        raise UsageError(f"--flagfile={path}: {error.strerror}; check the path") from error
    except (RuntimeError, ValueError) as error:
        raise UsageError(f"--flagfile={path}: {error}; name a text file of flags") from error
    if resolved in outer:
        raise UsageError(f"--flagfile={path} includes itself; take that line out of the file")
    expanded: list[str] = []
    for flag in map(str.strip, lines):
        name, equals, value = flag.partition("=")
        if name in _DIRECTIVES:
            expanded += _flags_in(value.strip(), (*outer, resolved))
        elif flag.startswith("-") and (known := name.lstrip("-")) in GONE:
            if is_gone(known, value):
                raise UsageError(f"{flag}: {GONE[known]}")
        elif flag and not flag.startswith(("#", "//")):
            expanded.append(name + equals + _unquoted(value))
    return expanded


def _needs_quotes(value: str) -> bool:
    """Return whether a line could not be read back with this value as it is."""
    as_it_is = value == value.strip() and len(value.splitlines()) < 2
    return not as_it_is or _unquoted(value) != value


def _unquoted(text: str) -> str:
    """Return the value of a text in a flagfile, without the quotes of a value that needs them.

    Any other text is the value itself, with its quotes.
    """
    if len(text) < 2 or not text[0] == text[-1] == '"':
        return text
    try:
        value = json.loads(text)
    except (RecursionError, ValueError):
        return text
    return value if _needs_quotes(value) else text
